package body_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize/internal/entry/httpapi/body"
)

// sent is a request whose body, of a length that nobody knows, is still to come.
func sent(app *fiber.App) (c *fiber.Ctx, write *io.PipeWriter) {
	c = app.AcquireCtx(&fasthttp.RequestCtx{})
	read, write := io.Pipe()
	c.Request().SetBodyStream(read, -1)
	return c, write
}

// An owner that sends long bodies slowly, or many, leaves room and turns to the next.
func TestLongBodiesOfAnOwnerLeaveRoomAndTurnsToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, places, many = 1 << 20, 8, 50
		bodies, app := body.New(places*limit, time.Minute, 0), fiber.New()
		ctx, end := context.WithCancel(t.Context())
		var slow []*io.PipeWriter
		for range many {
			c, write := sent(app)
			slow = append(slow, write)
			go func() { _ = bodies.Read(ctx, c, "slow", limit, func([]byte) error { return nil }) }()
		}
		began := 0
		for _, write := range slow {
			go func() {
				if _, err := io.WriteString(write, "{"); err == nil { // it is read: it has room
					began++ // one at a time: synctest waits
				}
			}()
			synctest.Wait()
		}
		if began != places/2 {
			t.Errorf("%d slow bodies have room, want half of %d", began, places)
		}

		// All turns are taken, and many wait before the other comes.
		var order []string
		free := make(chan struct{})
		read := func(owner string) {
			c, write := sent(app)
			go func() { _, _ = io.WriteString(write, strings.Repeat(" ", 1000)); _ = write.Close() }()
			go func() {
				if err := bodies.Read(t.Context(), c, owner, 1<<10, func([]byte) error {
					order = append(order, owner)
					<-free
					return nil
				}); err != nil {
					t.Error(owner, err)
				}
			}()
			synctest.Wait()
		}
		for range many {
			read("many")
		}
		taken := len(order)
		read("quiet")
		for range many + 1 {
			free <- struct{}{}
			synctest.Wait()
		}
		if place := strings.Join(order[:taken+2], " "); !strings.Contains(place, "quiet") {
			t.Errorf("with %d turns the order was %s", taken, place)
		}
		end()
		for _, write := range slow {
			_ = write.Close()
		}
	})
}

// Decoders are used again. None may bring anything from one body into the next.
func TestNothingOfABodyIsReadWithTheNext(t *testing.T) {
	type pair struct{ A, B int }
	for _, before := range []string{`{"a":1}`, `{"a":1}{"b":2}`, `{"a":1}  `, `{"a":`, `{"a":"x"}`, `{"c":1}`, `{"a":1}]`, `{"a":1}` + strings.Repeat(" ", 10_000) + `{"b":2}`} {
		for range 100 { // decoders are kept by chance
			_ = body.DecodeStrictly([]byte(before), new(pair))
			var next pair
			if err := body.DecodeStrictly([]byte(`{"a":3}`), &next); err != nil || next != (pair{A: 3}) {
				t.Fatalf("after %.20q: %+v, %v", before, next, err)
			}
		}
	}
	if err := body.DecodeStrictly([]byte(`{"a":3,"c":4}`), new(pair)); err == nil {
		t.Error("a field that the type does not have is no error")
	}
}
