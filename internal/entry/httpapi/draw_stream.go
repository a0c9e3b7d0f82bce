package httpapi

import (
	"bufio"
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/stream"
	"triprize/internal/service/subscription"
)

// publicDraw returns what anonymous callers read of a draw. It is as old as campaignAge at
// most, and no older than the last change of the campaign that was noticed.
func (s *Server) publicDraw(ctx context.Context, id uuid.UUID) (drawAnswer, error) {
	found, err := s.draws.Get(ctx, id, func(known readcache.Copy[drawAnswer]) bool {
		return known.ReadAt.After(s.changes.ChangedAt(id))
	})
	return found.Value, err
}

// StreamDraw follows what is public of a draw: at once, and whenever it changes.
func (s *Server) StreamDraw(ctx context.Context, r operations.StreamDrawRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	seen := response.ValueOf(r.Params.LastEventID)
	now, err := s.publicDraw(ctx, r.Campaign)
	if err != nil {
		return nil, err
	}
	if now.isOver && now.tag == seen {
		return response.Stream{Over: true}, nil
	}
	release, err := s.streams.enter(who.Caller, s.mostStreams(who.Caller))
	if err != nil {
		return nil, err
	}
	changes := s.changes.Subscribe(r.Campaign, "")
	f := drawFollower{server: s, id: r.Campaign, changes: changes, seen: seen}
	return response.Stream{Call: who, Draining: s.draining, Stop: func() { changes.Stop(); release() }, Run: func(ctx context.Context, w *bufio.Writer) {
		s.relay(ctx, w, f.follow)
	}}, nil
}

// drawFollower makes the events of one stream.
type drawFollower struct {
	server  *Server
	id      uuid.UUID
	changes *subscription.Subscription
	seen    string // tag of the draw that the client has
}

// follow passes on the draw whenever it differs from what the client has, until it is over
// or ctx ends. A sale changes a campaign all the time, and its draw hardly ever: that is
// read only when it can have changed. One that cannot be read is read again.
func (f *drawFollower) follow(ctx context.Context, out chan<- stream.Event) {
	known := ""
	var again <-chan time.Time
	for {
		select {
		case now := <-f.changes.Progress():
			version := now.DrawVersion()
			if version == known {
				continue
			}
			known = version
		case <-again:
		case <-ctx.Done():
			return
		}
		draw, err := f.read(ctx)
		if err != nil {
			again = time.After(f.server.settings.Streams.Interval)
			continue
		}
		again = nil
		if draw.tag != f.seen {
			f.seen = draw.tag
			select {
			case out <- stream.Event{ID: draw.tag, Name: "draw", Data: draw.body, Last: draw.isOver}:
			case <-ctx.Done():
				return
			}
		}
		if draw.isOver {
			return
		}
	}
}

func (f *drawFollower) read(ctx context.Context) (drawAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.server.settings.API.RequestTimeout)
	defer cancel()
	return f.server.publicDraw(ctx, f.id)
}

// relay sends what events passes on until that returns, or the stream ends: its context ends
// then.
func (s *Server) relay(ctx context.Context, w *bufio.Writer, events func(ctx context.Context, out chan<- stream.Event)) {
	source := make(chan stream.Event)
	passing, stop := context.WithCancel(context.WithoutCancel(ctx)) // Relay says why it ends
	go func() {
		defer close(source)
		events(passing, source)
	}()
	_ = stream.Relay(ctx, w, s.settings.Streams, source, func(e stream.Event) stream.Event { return e }) // the client is gone
	stop()
	for range source { // lets events end
	}
}
