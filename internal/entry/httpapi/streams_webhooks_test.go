package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stream"
	"triprize/internal/store/apikey"
	"triprize/internal/store/job"
	hook "triprize/internal/store/webhook"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
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

// textOf is the detail of a problem, without an id.
func textOf(t *testing.T, body, id string) string {
	t.Helper()
	var problem struct{ Detail string }
	if err := json.Unmarshal([]byte(body), &problem); err != nil || !strings.Contains(problem.Detail, id) {
		t.Fatalf("%s: %v", body, err)
	}
	return strings.ReplaceAll(problem.Detail, id, "ID")
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
	stranger := s.NewKey("another")
	unknown := uuid.NewString()
	theirs, nobodys := s.Listen(0, stranger, path, place), s.Listen(0, stranger, path, unknown+".0")
	if a, b := string(theirs.Body), string(nobodys.Body); theirs.Status != http.StatusNotFound || nobodys.Status != http.StatusNotFound ||
		textOf(t, a, strings.Split(place, ".")[0]) != textOf(t, b, unknown) {
		t.Errorf("a listener of another client is told from one that is not there:\n%s\n%s", a, b)
	}
	for what, c := range map[string]struct {
		key, path string
		status    int
	}{
		"another client": {stranger, path, http.StatusNotFound}, "other events": {s.App, "/v1/webhook-stream?events=hold.*", http.StatusBadRequest},
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

// A listener is a row and a secret of its client's: a look at the headers makes none.
func TestAHeadOfTheStreamOfWebhooksWritesNothing(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	key := s.NewKey("head")
	head, body, err := plain(t, http.MethodHead, s.URLs[0]+"/v1/webhook-stream", map[string]string{"Authorization": "Bearer " + key})
	if err != nil || head.StatusCode != http.StatusOK || head.Header.Get("Content-Type") != "text/event-stream" || len(body) > 0 {
		t.Fatalf("%v %s, %v", head, body, err)
	}
	if n := servers.Value[int](t, s.DB, `SELECT count(*) FROM webhook_endpoints WHERE client = $1`, s.Client("head")); n != 0 {
		t.Errorf("%d listeners", n)
	}
}

// The first looks at its key, the second is over by the transaction that revokes.
func TestTheStreamsOfARevokedKeyEndAndItsEndpointsToo(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{fleet.Lively}, Schedulers: -1})
	id := s.Campaign(4)
	key := s.NewKey("thief")
	prefix := strings.Split(key, "_")[1]
	board := s.Listen(0, key, "/v1/campaigns/"+id.String()+"/events", "")
	board.WantEvent()
	mine := s.Listen(0, s.App, "/v1/campaigns/"+id.String()+"/events", "")
	mine.WantEvent()
	hooks := s.Listen(0, key, "/v1/webhook-stream", "")
	hooks.WantEvent()
	e := endpointOf(s, asked(s, key, endpointsPath, "a", endpointBody("*")), http.StatusCreated)
	err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
		if err := apikey.Revoke(t.Context(), tx, prefix); err != nil {
			return err
		}
		_, _, err := hook.KeyRevoked(t.Context(), tx, prefix, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	board.WantEnd()
	hooks.WantEnd()
	if board.Reason() != stream.Revoked || hooks.Reason() != stream.Revoked {
		t.Errorf("the streams end with %q and %q", board.Reason(), hooks.Reason())
	}
	if l := s.Listen(0, key, "/v1/webhook-stream", ""); l.Status != http.StatusUnauthorized {
		t.Errorf("it comes back: %v", l.Answer)
	}
	now := endpointOf(s, s.Do(0, s.Operator, http.MethodGet, endpointsPath+"/"+e.ID.String(), nil, nil), http.StatusOK)
	if now.State != "disabled" || now.DisabledReason == nil || *now.DisabledReason != "revoked" {
		t.Errorf("its endpoint: %+v", now)
	}
	s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true})
	mine.WantEvent() // goes on
	mine.HangUp()
}
