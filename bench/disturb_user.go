package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// These strangers have one user's token.

// The login service whose tokens the api trusts.
const (
	tokenIssuer   = "https://login.example"
	tokenAudience = "triprize"
	tokenSecret   = "a secret of the login service, not of ours"
)

// trustedTokens are settings of the api.
func trustedTokens() []string {
	return []string{"TRIPRIZE_TOKENS_ISSUER=" + tokenIssuer, "TRIPRIZE_TOKENS_AUDIENCE=" + tokenAudience, "TRIPRIZE_TOKENS_HS256_SECRET=" + tokenSecret}
}

// token is one user's token.
func token() string {
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"iss":"%s","aud":"%s","sub":"stranger","iat":%d,"exp":%d}`, tokenIssuer, tokenAudience, now, now+3600)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte(tokenSecret))
	mac.Write([]byte(text))
	return "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sendLargeBodies sends bodies of 1 MB with many faults, on 8 connections.
func sendLargeBodies(ctx context.Context, d *disturber) {
	body := `{"selection":{"positions":[0` + strings.Repeat(",0", 500_000) + `]},"payment":{"method":"external"}}`
	large := d.request(http.MethodPost, d.noisy()+"/purchases", token(), body)
	d.hammer(ctx, 8, 0, func() []byte { return large })
}

// sendManyPositions sends bodies of 975 kB of well-formed positions, on 8 connections.
func sendManyPositions(ctx context.Context, d *disturber) {
	const one = `{"layer":1,"column":1}`
	body := `{"selection":{"positions":[` + one + strings.Repeat(","+one, 975_000/(len(one)+1)) + `]},"payment":{"method":"external"}}`
	large := d.request(http.MethodPost, d.noisy()+"/purchases", token(), body)
	d.hammer(ctx, 8, 0, func() []byte { return large })
}

// sendMalformed sends malformed purchases, on 8 connections.
func sendMalformed(ctx context.Context, d *disturber) {
	malformed := d.request(http.MethodPost, d.noisy()+"/purchases", token(), `{"selection":{"quantity":"many"},"payment":{"method":"shells"}}`)
	d.hammer(ctx, 8, 0, func() []byte { return malformed })
}

// churnStreams opens streams and closes them again at once, 40 at a time.
func churnStreams(ctx context.Context, d *disturber) {
	stream := d.request(http.MethodGet, d.noisy()+"/events", token(), "")
	others := d.request(http.MethodGet, d.noisy()+"/events", d.app(), "")
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			for ctx.Err() == nil {
				d.answers[d.touch(ctx, stream)/100].Add(1)
			}
		})
	}
	for ctx.Err() == nil {
		if d.touch(ctx, others) != http.StatusOK && ctx.Err() == nil {
			d.refusedToOthers.Add(1)
		}
		wait(ctx, time.Second/10, nil)
	}
	group.Wait()
}

// touch sends a request, reads the head of the answer, and closes the connection. It
// returns the status, 0 when there is none.
func (d *disturber) touch(ctx context.Context, request []byte) (status int) {
	conn, ok := d.connect(ctx)
	if !ok {
		wait(ctx, 10*time.Millisecond, nil)
		return 0
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(request); err != nil {
		return 0
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with its connection
	if err != nil || a.StatusCode >= 600 {
		return 0
	}
	return a.StatusCode
}
