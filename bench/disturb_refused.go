package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// These callers are anonymous, or have one user's token. Their requests change nothing.

// docsScript is the largest file that the api serves.
const docsScript = "/docs/swagger-ui-bundle.js"

// neverRead opens 200 connections that ask for the docs' script and never read.
func neverRead(ctx context.Context, d *disturber) {
	d.keepOpen(ctx, 200, d.request(http.MethodGet, docsScript, "", ""), nil)
}

// sendHalfPosts opens 500 connections that promise a megabyte and send one byte.
func sendHalfPosts(ctx context.Context, d *disturber) {
	half := fmt.Appendf(nil, "POST %s/purchases HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: 1000000\r\n\r\n{",
		d.noisy(), d.sys.address, uuid.NewString())
	d.keepOpen(ctx, 500, half, nil)
}

// keepOpen opens n connections, sends a request on each, and keeps them open until ctx
// ends or the other end closes them; then it opens them again, a second later. The answers go
// to read, or are not read.
func (d *disturber) keepOpen(ctx context.Context, n int, request []byte, read func(net.Conn)) {
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for ctx.Err() == nil {
				d.open(ctx, request, read)
				wait(ctx, time.Second, nil)
			}
		})
	}
	group.Wait()
}

func (d *disturber) open(ctx context.Context, request []byte, read func(net.Conn)) {
	conn, closed := d.connect(ctx)
	if conn == nil {
		return
	}
	defer closed()
	if tcp, ok := conn.(*net.TCPConn); ok && read == nil {
		_ = tcp.SetReadBuffer(4 << 10) // so that little is on its way
	}
	if _, err := conn.Write(request); err != nil {
		d.cut.Add(1)
		return
	}
	if read != nil {
		read(conn)
		return
	}
	<-ctx.Done()
}

// readAnonymously reads the docs' script on 50 connections, and metrics on 50.
func readAnonymously(ctx context.Context, d *disturber) {
	script, metrics := d.request(http.MethodGet, docsScript, "", ""), d.request(http.MethodGet, "/metrics", "", "")
	var group sync.WaitGroup
	group.Go(func() { d.hammer(ctx, 50, 0, func() []byte { return script }) })
	group.Go(func() { d.hammer(ctx, 50, 0, func() []byte { return metrics }) })
	group.Wait()
}

// sendOddKeys sends keys that are no text, on 20 connections.
func sendOddKeys(ctx context.Context, d *disturber) {
	odd := d.request(http.MethodGet, d.noisy(), "Bearer tp_"+strings.Repeat("\xff", 12)+"_"+strings.Repeat("0", 64), "")
	d.hammer(ctx, 20, 0, func() []byte { return odd })
}

// viewSale follows the noisy campaign on 1,000 streams.
func viewSale(ctx context.Context, d *disturber) {
	follow := d.request(http.MethodGet, d.noisy()+"/events", d.app(), "")
	d.keepOpen(ctx, 1000, follow, func(conn net.Conn) {
		a, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with its connection
		if err != nil {
			return
		}
		d.answers[min(a.StatusCode/100, 5)].Add(1)
		_, _ = io.Copy(io.Discard, a.Body) // until the stream ends
	})
}

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
	claims := fmt.Sprintf(`{"iss":"%s","aud":"%s","sub":"somebody","iat":%d,"exp":%d}`, tokenIssuer, tokenAudience, now, now+3600)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte(tokenSecret))
	mac.Write([]byte(text))
	return "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// posting sends purchases with a body and a user's token, on 8 connections.
func posting(body string) func(ctx context.Context, d *disturber) {
	return func(ctx context.Context, d *disturber) {
		request := d.request(http.MethodPost, d.noisy()+"/purchases", token(), body)
		d.hammer(ctx, 8, 0, func() []byte { return request })
	}
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
	conn, closed := d.connect(ctx)
	if conn == nil {
		wait(ctx, 10*time.Millisecond, nil)
		return 0
	}
	defer closed()
	if _, err := conn.Write(request); err != nil {
		return 0
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with its connection
	if err != nil || a.StatusCode >= 600 {
		return 0
	}
	return a.StatusCode
}

// readBoards asks for a board of 20,100 positions with a user's token: 300 connections that
// never read, and 64 that have it already.
func readBoards(ctx context.Context, d *disturber) {
	board := d.request(http.MethodGet, d.noisy()+"/positions", token(), "")
	again := append(bytes.TrimSuffix(bytes.Clone(board), []byte("\r\n")), "If-None-Match: *\r\n\r\n"...)
	var group sync.WaitGroup
	group.Go(func() { d.keepOpen(ctx, 300, board, nil) })
	group.Go(func() { d.hammer(ctx, 64, 0, func() []byte { return again }) })
	group.Wait()
}

// sendWrongKeys sends keys that nobody has, each another one, on 64 connections.
func sendWrongKeys(ctx context.Context, d *disturber) {
	d.hammer(ctx, 64, 0, func() []byte {
		return d.request(http.MethodGet, d.noisy(), "Bearer tp_"+uuid.NewString()[:12]+"_"+strings.Repeat("0", 64), "")
	})
}

// readLists reads what no copy answers: by another client's key, and by a user's token.
func readLists(ctx context.Context, d *disturber) {
	found, own := d.request(http.MethodGet, "/v1/purchases?reference=pi_x", d.app(), ""), d.request(http.MethodGet, "/v1/users/somebody/purchases", token(), "")
	var group sync.WaitGroup
	group.Go(func() { d.hammer(ctx, 64, 0, func() []byte { return found }) })
	group.Go(func() { d.hammer(ctx, 64, 0, func() []byte { return own }) })
	group.Wait()
}
