package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// disturber is the other caller at work: connections to one api, and what came back.
type disturber struct {
	sys   *system
	group sync.WaitGroup // what goes on until the end of the scenario

	purchase uuid.UUID   // see buyAnother
	holds    []uuid.UUID // see holdAll

	answers [6]atomic.Int64 // by the first digit of the status; 0: there was none
	cut     atomic.Int64    // connections that ended without an answer

	odd   []string  // answers that nobody should get; see buyByCard
	began time.Time // see deleteExpired

	refusedToOthers atomic.Int64 // streams that another client asked for
}

// note adds what came back to the result.
func (d *disturber) note(r *result, measured time.Duration) {
	r.note("streams refused to others", float64(d.refusedToOthers.Load()))
	for digit := range d.answers {
		if count := d.answers[digit].Load(); count > 0 {
			r.note(fmt.Sprintf(answersOf, digit), float64(count)/(runUp+measured).Seconds())
		}
	}
	r.note("stranger's connections cut", float64(d.cut.Load()))
}

// request returns the bytes of a request. authorization and body may be empty.
func (d *disturber) request(method, path, authorization, body string) []byte {
	out := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, d.sys.address)
	if authorization != "" {
		out = append(out, "Authorization: "+authorization+"\r\n"...)
	}
	if method == http.MethodPost {
		out = fmt.Appendf(out, "Content-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n", uuid.NewString(), len(body))
	}
	return append(append(out, "\r\n"...), body...)
}

// app is the key of another client than the one whose purchases are measured.
func (d *disturber) app() string { return "Bearer " + d.sys.setup.otherKey }

// noisy is the path of the other caller's campaign.
func (d *disturber) noisy() string { return "/v1/campaigns/" + d.sys.campaigns[noisyCampaign].String() }

// hammer sends requests on n connections until ctx ends: on each one after the other, one
// every so often; 0 is at once. A connection that was closed is opened again.
func (d *disturber) hammer(ctx context.Context, n int, every time.Duration, next func() []byte) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			wait(ctx, every*time.Duration(i)/time.Duration(n), nil)
			for ctx.Err() == nil {
				d.converse(ctx, every, next)
				wait(ctx, every+10*time.Millisecond, nil) // before it connects again
			}
		})
	}
	group.Wait()
}

// converse sends requests on one connection until it is closed or ctx ends.
func (d *disturber) converse(ctx context.Context, every time.Duration, next func() []byte) {
	conn, closed := d.connect(ctx)
	if conn == nil {
		return
	}
	defer closed()
	in := bufio.NewReaderSize(conn, 16<<10)
	for ctx.Err() == nil {
		start := time.Now()
		if _, err := conn.Write(next()); err != nil && ctx.Err() == nil {
			d.cut.Add(1) // the answer may be there all the same
		}
		if _, ok := d.answer(ctx, in); !ok {
			return
		}
		wait(ctx, every-time.Since(start), nil)
	}
}

// connect opens a connection that ends with ctx; nil: there is none. closed closes it.
func (d *disturber) connect(ctx context.Context) (conn net.Conn, closed func()) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", d.sys.address)
	if err != nil {
		if ctx.Err() == nil {
			d.cut.Add(1)
		}
		return nil, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}
}

// answer reads and counts an answer. It reports whether another request may follow.
func (d *disturber) answer(ctx context.Context, in *bufio.Reader) (body []byte, ok bool) {
	a, err := http.ReadResponse(in, nil) //nolint:bodyclose // readMost reads it to its end
	if err == nil {
		d.answers[min(a.StatusCode/100, 5)].Add(1)
		body, err = readMost(a.Body)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.cut.Add(1)
		}
		return nil, false
	}
	return body, !a.Close
}

// readMost reads to the end and returns the first bytes.
func readMost(r io.ReadCloser) ([]byte, error) {
	const most = 4 << 10
	body, err := io.ReadAll(io.LimitReader(r, most))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return body, err
}

// ask sends one request on a connection of its own and decodes the answer into v, if
// there is one.
func (d *disturber) ask(ctx context.Context, request []byte, v any) error {
	conn, closed := d.connect(ctx)
	if conn == nil {
		return fmt.Errorf("no connection to %s", d.sys.address)
	}
	defer closed()
	if _, err := conn.Write(request); err != nil {
		return err
	}
	body, _ := d.answer(ctx, bufio.NewReader(conn))
	if v == nil {
		return nil
	}
	return json.Unmarshal(body, v)
}
