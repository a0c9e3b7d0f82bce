package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// These strangers need no key.

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
// ends or the other end closes them; then it opens them again, a second later. What comes
// back goes to read, or is not read.
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
	conn, ok := d.connect(ctx)
	if !ok {
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
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
