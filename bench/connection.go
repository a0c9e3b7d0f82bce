package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
)

// connection is one keep-alive connection to the api that posts purchases and holds.
// It writes HTTP by hand because it shares the machine with what it measures:
// net/http would cost as much CPU as the api.
type connection struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
	ids  *rand.ChaCha8
	head []byte // the headers that are the same in every request
}

// answer is one HTTP answer. The next answer on the connection overwrites body.
type answer struct {
	status int
	job    uuid.UUID // from the Location header; zero: none
	body   []byte
}

// answerTimeout is well above the Prefer: wait of requests.
const answerTimeout = 60 * time.Second

// dial connects. The requests have some headers; without any they ask to wait.
func dial(ctx context.Context, address, key string, headers ...string) (*connection, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	return &connection{conn: conn, in: bufio.NewReaderSize(conn, 8<<10), ids: rand.NewChaCha8(seed),
		head: []byte(" HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + key +
			"\r\nContent-Type: application/json\r\n" + cmp.Or(strings.Join(headers, "\r\n"), "Prefer: wait=30") + "\r\nIdempotency-Key: ")}, nil
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

// buy buys one position, or a pair, with a fresh key and waits for the final answer.
func (c *connection) buy(campaign uuid.UUID, paid, owner string) (answer, error) {
	return c.post(campaign, "/purchases", owner, paid)
}

// hold requests a hold of a position for a new user, with a fresh key.
func (c *connection) hold(campaign uuid.UUID, at shape.Position) (answer, error) {
	return c.post(campaign, "/holds", "", `,"positions":[{"layer":`+strconv.Itoa(at.Layer)+`,"column":`+strconv.Itoa(at.Column)+`}]}`)
}

// post sends a request for a user; empty: a new one. rest is the body after the user.
func (c *connection) post(campaign uuid.UUID, path, user, rest string) (answer, error) {
	const begin, length = `{"user_id":"`, len("user-00000000000000000000000000000000")
	c.out = append(c.out[:0], "POST /v1/campaigns/"...)
	c.out = append(c.out, campaign.String()...)
	c.out = append(c.out, path...)
	c.out = append(c.out, c.head...)
	c.out = c.appendID(c.out)
	c.out = append(c.out, "\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(begin)+length+len(`"`)+len(rest)), 10)
	c.out = append(c.out, "\r\n\r\n"+begin...)
	if user == "" {
		c.out = c.appendID(append(c.out, "user-"...))
	} else {
		c.out = append(c.out, user...)
	}
	c.out = append(append(c.out, '"'), rest...)
	return c.send()
}

// send sends the request in out and reads the answer.
func (c *connection) send() (answer, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return answer{}, err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return answer{}, err
	}
	return c.read()
}

// appendID appends 128 random bits in hex: keys of real clients are as random, which
// matters for the index.
func (c *connection) appendID(out []byte) []byte {
	var id [16]byte
	_, _ = c.ids.Read(id[:]) // never fails
	return hex.AppendEncode(out, id[:])
}

var (
	contentLength = []byte("Content-Length: ")
	location      = []byte("Location: /v1/jobs/")
	errNoLength   = errors.New("an answer without Content-Length")
)

// read reads one answer: the status line, the two headers that are used, and the body.
func (c *connection) read() (a answer, err error) {
	line, err := c.line()
	if err != nil {
		return a, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return a, fmt.Errorf("not an HTTP answer: %q", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, err
	}
	length := -1
	for {
		if line, err = c.line(); err != nil {
			return a, err
		}
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return a, err
			}
		} else if value, ok := bytes.CutPrefix(line, location); ok {
			if a.job, err = uuid.ParseBytes(value); err != nil {
				return a, err
			}
		}
	}
	if length < 0 {
		return a, errNoLength
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	a.body = c.body[:length]
	_, err = io.ReadFull(c.in, a.body)
	return a, err
}

func (c *connection) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}
