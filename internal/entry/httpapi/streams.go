package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/stream"
	"triprize/internal/service/subscription"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// streamAnswer is an event stream, or 204 for a client that has seen the last
// event: browsers then stop reconnecting.
type streamAnswer struct {
	over     bool
	call     *call
	draining context.Context
	run      func(w *bufio.Writer, end <-chan struct{}) // returns when the stream ends: at end, if not before
	stop     func()                                     // releases what the stream uses
}

func (a streamAnswer) send(c *fiber.Ctx) error {
	if a.over {
		return c.SendStatus(http.StatusNoContent)
	}
	c.Set(fiber.HeaderContentType, stream.ContentType)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no")   // proxies must pass on events at once
	if c.Method() == http.MethodHead { // Fiber would write the end of a body although there must be none
		a.stop()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer a.stop()
		present, leave := a.call.whilePresent(a.draining)
		defer leave()
		a.run(w, present.Done())
	})
	return nil
}

// VisitStreamCampaignResponse implements operations.StreamCampaignResponseObject.
func (a streamAnswer) VisitStreamCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitStreamJobResponse implements operations.StreamJobResponseObject.
func (a streamAnswer) VisitStreamJobResponse(c *fiber.Ctx) error { return a.send(c) }

// StreamCampaign follows a campaign: its progress at once, and whenever it changes.
func (s handlers) StreamCampaign(ctx context.Context, r operations.StreamCampaignRequestObject) (operations.StreamCampaignResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	found, err := campaign.Get(ctx, s.db, r.Campaign)
	if err != nil {
		return nil, err
	}
	seen, board := "", int64(0)
	if r.Params.LastEventID != nil {
		seen, board = seenOf(*r.Params.LastEventID)
	}
	now, err := subscription.ProgressOf(ctx, s.db, found)
	if err != nil {
		return nil, err
	}
	if now.Over() && now.Version == seen {
		return streamAnswer{over: true}, nil
	}
	release, err := s.streams.Acquire(who.client, s.mostStreams(who.caller))
	if err != nil {
		return nil, err
	}
	event := campaignEvent
	if r.Params.Positions != nil && *r.Params.Positions {
		event = (&boardFollower{server: s.Server, seen: board}).event
	}
	subscription := s.campaigns.Subscribe(r.Campaign, seen)
	return streamAnswer{call: who, draining: s.draining, stop: func() { subscription.Stop(); release() }, run: func(w *bufio.Writer, end <-chan struct{}) {
		_ = stream.Relay(w, s.settings.Streams, subscription.Progress(), event, end) // the client is gone
	}}, nil
}

// mostStreams is how many streams a caller may have open here: an app has many users.
func (s *Server) mostStreams(who caller) int {
	if who.role == user {
		return s.settings.Streams.MaxPerUser
	}
	return s.settings.Streams.MaxPerClient
}

func campaignEvent(now campaign.Progress) stream.Event {
	data, _ := json.Marshal(resource.CampaignEvent(now)) // cannot fail
	return stream.Event{ID: now.Version, Name: "campaign", Data: data, Last: now.Over()}
}

// StreamJob follows a job: as it is now, then whenever it changes, until it is final.
func (s handlers) StreamJob(ctx context.Context, r operations.StreamJobRequestObject) (operations.StreamJobResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	waiter := s.jobs.Waiter(r.Job) // before the job is read, so that nothing can be missed
	now, err := s.visibleJob(ctx, r.Job)
	if err != nil {
		waiter.Stop()
		return nil, err
	}
	waiter.Has(now)
	seen := r.Params.LastEventID != nil && *r.Params.LastEventID == subscription.VersionOf(now)
	if seen && now.State.Final() {
		waiter.Stop()
		return streamAnswer{over: true}, nil
	}
	release, err := s.streams.Acquire(who.client, s.mostStreams(who.caller))
	if err != nil {
		waiter.Stop()
		return nil, err
	}
	first := []job.Job{now}
	if seen {
		first = nil
	}
	return streamAnswer{call: who, draining: s.draining, stop: func() { waiter.Stop(); release() }, run: func(w *bufio.Writer, end <-chan struct{}) {
		_ = stream.Relay(w, s.settings.Streams, waiter.Changes(), jobEvent, end, first...) // the client is gone
	}}, nil
}

func jobEvent(j job.Job) stream.Event {
	data, _ := json.Marshal(resource.Job(j)) // its result is valid JSON: it is from a json column
	return stream.Event{ID: subscription.VersionOf(j), Name: "job", Data: data, Last: j.State.Final()}
}
