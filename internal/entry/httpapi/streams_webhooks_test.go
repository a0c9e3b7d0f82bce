package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fleet"
)

// streamedEvent is what the tests read of an event of the stream of webhooks.
type streamedEvent struct {
	ID      string `json:"webhook_id"`
	Message struct {
		Type string
		Data struct{ ID string }
	}
}

func nextStreamed(t *testing.T, l *fleet.Listener) (place string, e streamedEvent) {
	t.Helper()
	frame := l.WantEvent()
	if frame.Name != "webhook" {
		t.Fatalf("got %+v", frame)
	}
	if err := json.Unmarshal([]byte(frame.Data), &e); err != nil {
		t.Fatal(err)
	}
	return frame.ID, e
}

func TestAListenerThatComesBackHasMissedNothing(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{fleet.Lively}, Schedulers: -1})
	id := s.Campaign(4)
	const path = "/v1/webhook-stream?events=purchase.*"
	first := s.Listen(0, s.App, path, "")
	if began := first.WantEvent(); began.Name != "listening" || began.ID == "" {
		t.Fatalf("it begins with %+v", began)
	}
	bought := make(map[string]bool)
	buy := func(user string) {
		t.Helper()
		a := s.Buy(fleet.Order{Campaign: id, User: user, Wait: true})
		if a.State != job.Succeeded {
			t.Fatalf("%s: %v", user, a)
		}
		bought[a.Result.PurchaseID.String()] = true
	}
	buy("a")
	place, seen := nextStreamed(t, first)
	buy("b")
	_, lost := nextStreamed(t, first) // fetched, and as if it had never arrived
	first.HangUp()
	buy("c") // while nobody listens

	again := s.Listen(0, s.App, path, place)
	if began := again.WantEvent(); began.Name != "listening" || began.ID != place {
		t.Fatalf("it goes on with %+v", began)
	}
	heard := map[string]bool{seen.Message.Data.ID: true}
	for range 2 {
		_, e := nextStreamed(t, again)
		if e.Message.Type != "purchase.completed" || e.ID == seen.ID {
			t.Errorf("got %+v", e)
		}
		heard[e.Message.Data.ID] = true
	}
	if !heard[lost.Message.Data.ID] || len(heard) != len(bought) {
		t.Errorf("heard of %v, bought %v", heard, bought)
	}
	for what, c := range map[string]struct {
		key, path string
		status    int
	}{
		"another client": {s.NewKey("another"), path, http.StatusNotFound}, "other events": {s.App, "/v1/webhook-stream?events=hold.*", http.StatusBadRequest},
	} {
		if l := s.Listen(0, c.key, c.path, place); l.Status != c.status {
			t.Errorf("%s: %v %s", what, l.Answer, l.Body)
		}
	}
	for _, bad := range []string{"purchase.sold", "purchase.", "", "webhook-endpoint.test", "*,,"} {
		if l := s.Listen(0, s.App, "/v1/webhook-stream?events="+bad, ""); l.Status != http.StatusBadRequest {
			t.Errorf("events=%s: %v", bad, l.Answer)
		}
	}
	if l := s.Listen(0, s.App, path, "not-a-place"); l.Status != http.StatusBadRequest {
		t.Errorf("a place of another stream: %v", l.Answer)
	}
	again.HangUp()
}
