//go:build soak

package e2e

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"triprize.example/client"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestAnAPIThatStopsEndsItsStreamsAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 2, Workers: -1, Env: []string{"TRIPRIZE_API_SHUTDOWN_TIMEOUT=1m"}})
	id := s.Campaign(4)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	board, follower := s.Listen(0, s.App, fleet.CampaignEvents(id), ""), s.Listen(0, s.App, fleet.JobEvents(queued.ID), "")
	seen := board.WantEvent()
	follower.WantEvent()
	if err := s.APIs[0].Stop(terminate, servers.Patience); err != nil { // an error when it had to be killed
		t.Fatal(err)
	}
	board.WantEnd()
	follower.WantEnd()
	if board.Reason() != "shutdown" || follower.Reason() != "shutdown" {
		t.Errorf("they ended by %s and %s", board.Reason(), follower.Reason())
	}
	if log := s.Log("api-1"); fleet.Contains(log, "cut off") {
		t.Errorf("it did not wait for its streams: %s", fleet.Tail(log, 1000))
	}
	again, same := s.Listen(1, s.App, fleet.CampaignEvents(id), seen.ID), s.Listen(1, s.App, fleet.JobEvents(queued.ID), "queued")
	s.RunWorker()
	if next := again.WantEvent(); next.ID == seen.ID {
		t.Errorf("told twice: %+v", next)
	}
	if end := same.WantEvent(); end.ID != "succeeded" {
		t.Errorf("got %+v", end)
	}
	same.WantEnd()
}

func TestTheClientFollowsOverManyConnectionsAndProcesses(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 2, Workers: -1, Env: []string{fleet.Lively, "TRIPRIZE_STREAMS_MAX_AGE=300ms", "TRIPRIZE_STREAMS_RETRY=100ms"}})
	id := s.Campaign(3)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	var dialer net.Dialer
	balancer := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, strings.TrimPrefix(s.URLs[0], "http://"))
		if err != nil {
			conn, err = dialer.DialContext(ctx, network, strings.TrimPrefix(s.URLs[1], "http://"))
		}
		return conn, err
	}}
	c, err := client.New("http://balancer", s.App, client.WithHTTPClient(&http.Client{Transport: balancer}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	told, failed := make(chan client.JobState, 100), make(chan error, 1)
	go func() {
		defer close(told)
		for now, err := range c.FollowJob(ctx, queued.ID) {
			if err != nil {
				failed <- err
				return
			}
			told <- now.State
		}
	}()
	states := []client.JobState{<-told}
	servers.Eventually(t, "the client has come back twice", func() bool {
		return s.Metric(0, `triprize_http_request_duration_seconds_count{method="GET",route="/v1/jobs/:job/events",status="200"}`) > 2
	})
	if err := s.APIs[0].Stop(terminate, servers.Patience); err != nil {
		t.Fatal(err)
	}
	s.RunWorker()
	for state := range told {
		states = append(states, state)
	}
	if len(failed) > 0 {
		t.Error(<-failed)
	}
	if !slices.Equal(states, []client.JobState{client.JobStateQueued, client.JobStateSucceeded}) {
		t.Errorf("followed: %v", states)
	}
}
