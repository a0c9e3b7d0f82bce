package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
)

// connection is one keep-alive connection to the api. It shares the machine with what it
// measures: net/http would cost as much CPU as the api.
type connection struct {
	conn     net.Conn
	client   fasthttp.HostClient
	request  fasthttp.Request
	response fasthttp.Response
	address  string
	ids      *rand.ChaCha8
	key      string // of each request; empty: a fresh one
}

// answer is one HTTP answer. The next answer on the connection overwrites body.
type answer struct {
	status int
	job    uuid.UUID // from the Location header; zero: none
	body   []byte
}

// answerTimeout is well above the Prefer: wait of requests.
const answerTimeout = 60 * time.Second

// dial connects. credential is a key or a token, empty: none; prefer is the header of that name, empty:
// requests wait for the final answer.
func dial(ctx context.Context, address, credential, prefer string) (*connection, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	c := &connection{conn: conn, address: "http://" + address, ids: rand.NewChaCha8(seed)}
	c.client = fasthttp.HostClient{Addr: address, MaxConns: 1, MaxIdleConnDuration: time.Hour, MaxIdemponentCallAttempts: 1,
		ReadTimeout: answerTimeout, WriteTimeout: answerTimeout, Dial: func(string) (net.Conn, error) { return conn, nil }}
	if credential != "" {
		c.request.Header.Set("Authorization", "Bearer "+credential)
	}
	c.request.Header.SetContentType("application/json")
	c.request.Header.Set("Prefer", cmp.Or(prefer, "wait=30"))
	return c, nil
}

// closeWith closes the connection when ctx ends, or when closed is called. Then nothing is
// on its way.
func (c *connection) closeWith(ctx context.Context) (closed func()) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	return func() {
		stop()
		_ = c.conn.Close()
	}
}

// How purchases are paid: the bodies, after the user.
const (
	paidExternally = `,"selection":{"quantity":1},"payment":{"method":"external"}}`
	paidByWallet   = `,"selection":{"quantity":1},"payment":{"method":"wallet"}}`
	randomPair     = `,"selection":{"quantity":2},"payment":{"method":"external"}}`
	adjacentPair   = `,"selection":{"quantity":2,"adjacent":true},"payment":{"method":"external"}}`
	paidByCard     = `,"selection":{"quantity":1},"payment":{"method":"card","payment_method":"pm_card_visa"}}`
)

// buy buys one position, or a pair, for a user; empty: a new one.
func (c *connection) buy(campaign uuid.UUID, paid, user string) (answer, error) {
	if user == "" {
		user = "user-" + c.id()
	}
	return c.send("POST", "/v1/campaigns/"+campaign.String()+"/purchases", `{"user_id":"`+user+`"`+paid)
}

// id returns 128 random bits in hex: keys of real clients are as random, which matters for
// the index.
func (c *connection) id() string {
	var id [16]byte
	_, _ = c.ids.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

var location = []byte("/v1/jobs/")

// send sends a request, and reads the answer.
func (c *connection) send(method, path, body string) (a answer, err error) {
	c.request.Header.SetMethod(method)
	c.request.Header.Set("Idempotency-Key", cmp.Or(c.key, c.id()))
	c.request.SetRequestURI(c.address + path)
	c.request.SetBodyString(body)
	if err := c.client.Do(&c.request, &c.response); err != nil {
		return a, err
	}
	a.status, a.body = c.response.StatusCode(), c.response.Body()
	if id, ok := bytes.CutPrefix(c.response.Header.Peek("Location"), location); ok {
		a.job, err = uuid.ParseBytes(id)
	}
	return a, err
}
