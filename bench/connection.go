package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
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

func dial(ctx context.Context, address, key string) (*connection, error) {
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
			"\r\nContent-Type: application/json\r\nPrefer: wait=30\r\nIdempotency-Key: ")}, nil
}

// The bodies of purchases. The zeros are replaced by the user's id.
const (
	paidExternally = `{"user_id":"user-00000000000000000000000000000000","selection":{"quantity":1},"payment":{"method":"external"}}`
	paidByWallet   = `{"user_id":"user-00000000000000000000000000000000","selection":{"quantity":1},"payment":{"method":"wallet"}}`
	paidByCard     = `{"user_id":"user-00000000000000000000000000000000","selection":{"quantity":1},"payment":{"method":"card","payment_method":"pm_card_visa"}}`
)

// purchase buys one position with a fresh key and waits for the final answer. It buys
// for a new user, or, when owner is not empty, for that owner of a wallet.
func (c *connection) purchase(campaign uuid.UUID, owner string) (answer, error) {
	if owner != "" {
		return c.buy(campaign, paidByWallet, owner)
	}
	return c.buy(campaign, paidExternally, "")
}

// purchaseByCard is purchase with a good card, for a new user.
func (c *connection) purchaseByCard(campaign uuid.UUID) (answer, error) {
	return c.buy(campaign, paidByCard, "")
}

// buy sends a purchase with one of the bodies. An empty owner is a new user.
func (c *connection) buy(campaign uuid.UUID, body, owner string) (answer, error) {
	const user = len(`{"user_id":"user-`)
	c.begin(campaign, "/purchases", len(body))
	c.out = append(c.out, body[:user]...)
	if owner == "" {
		c.out = c.appendID(c.out)
	} else {
		c.out = append(c.out, owner[len("user-"):]...)
	}
	c.out = append(c.out, body[user+32:]...)
	return c.send()
}

// hold requests a hold of a position for a new user, with a fresh key.
func (c *connection) hold(campaign uuid.UUID, at shape.Position) (answer, error) {
	const user, size = `{"user_id":"user-`, 32
	rest := `","positions":[{"layer":` + strconv.Itoa(at.Layer) + `,"column":` + strconv.Itoa(at.Column) + `}]}`
	c.begin(campaign, "/holds", len(user)+size+len(rest))
	c.out = append(c.out, user...)
	c.out = c.appendID(c.out)
	c.out = append(c.out, rest...)
	return c.send()
}

// begin writes the head of a request whose body has length bytes.
func (c *connection) begin(campaign uuid.UUID, path string, length int) {
	c.out = append(c.out[:0], "POST /v1/campaigns/"...)
	c.out = append(c.out, campaign.String()...)
	c.out = append(c.out, path...)
	c.out = append(c.out, c.head...)
	c.out = c.appendID(c.out)
	c.out = append(c.out, "\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(length), 10)
	c.out = append(c.out, "\r\n\r\n"...)
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
