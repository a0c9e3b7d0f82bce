package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestManyAtOnceBuyOnePositionOneGetsIt(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	at := fixture.At(3, 2)
	for _, n := range []int{20, 50} {
		id := s.Campaign(4)
		bought := 0
		for i, a := range fleet.AtOnce(n, func(i int) fleet.Answer { return s.BuyChosen(i, id, fmt.Sprint("user-", i), uuid.Nil, at) }) {
			switch {
			case a.State == job.Succeeded && len(a.Result.Positions) == 1 && a.Result.Positions[0] == at:
				bought++
			case !a.TakenAt(at):
				t.Errorf("request %d: %v %s", i, a, a.Body)
			}
		}
		if sold := s.CampaignNow(id).Counts.Sold; bought != 1 || sold != 1 {
			t.Errorf("%d of %d bought it; %d are sold", bought, n, sold)
		}
	}
}

// saleEvent is what an event of a campaign says.
type saleEvent struct {
	Positions    struct{ Total, Available, Reserved, Sold int }
	BoardVersion int64 `json:"board_version"`
}

// awaitSale reads events until one is as it should be, and returns it.
func awaitSale(t *testing.T, l *fleet.Listener, what string, good func(saleEvent) bool) saleEvent {
	t.Helper()
	for {
		f, more := l.Event()
		if !more {
			t.Fatalf("the stream has ended before: %s", what)
		}
		var e saleEvent
		if err := json.Unmarshal([]byte(f.Data), &e); err != nil {
			t.Fatal(err, f)
		}
		if good(e) {
			return e
		}
	}
}

// stateOf is what the board and the position itself say of a position.
func stateOf(s *fleet.System, campaign uuid.UUID, at string) string {
	s.T.Helper()
	return decoded[struct{ State string }](s, s.Read("/v1/campaigns/"+campaign.String()+"/positions/"+at)).State
}

// onBoard counts the positions of the board that are in a state.
func onBoard(s *fleet.System, campaign uuid.UUID, state string) int {
	a := s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/positions", nil, nil)
	return strings.Count(string(a.Body), `"state":"`+state+`"`)
}

func TestWithoutAnySweepAHoldIsOverAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1, Env: []string{"TRIPRIZE_STREAMS_INTERVAL=20ms"}})
	id, at := s.Campaign(4), fixture.At(3, 2)
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	first := s.MustHold(fleet.HoldOrder{Campaign: id, User: "first", At: []shape.Position{at}})
	if a := s.BuyChosen(0, id, "second", uuid.Nil, at); !a.TakenAt(at) {
		t.Errorf("before the deadline: %v %s", a, a.Body)
	}
	awaitSale(t, l, "held", func(e saleEvent) bool { return e.Positions.Reserved == 1 && e.Positions.Available == 9 })
	fixture.EndHold(t, s.DB, inventory.Hold{ID: first.ID, CampaignID: id})
	awaitSale(t, l, "free", func(e saleEvent) bool { return e.Positions.Reserved == 0 && e.Positions.Available == 10 })
	if state, c := stateOf(s, id, "3/2"), view(s, s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+id.String(), nil, nil), http.StatusOK); state != "available" || c.Positions.Reserved != 0 {
		t.Errorf("at the deadline the position is %s, the counts are %+v", state, c.Positions)
	}
	if h := s.HoldNow(s.App, first.ID); h.State != "expired" {
		t.Errorf("at the deadline: %v", h)
	}
	wantAnswer(t, "another buys it", s.BuyChosen(0, id, "second", uuid.Nil, at), job.Succeeded)
	for what, a := range map[string]fleet.Answer{"extend": s.Extend(s.App, first.ID).Answer, "release": s.Release(s.App, first.ID), "buy": s.BuyChosen(0, id, "first", first.ID)} {
		wantAnswer(t, fmt.Sprintf("%s, late", what), a, coded("hold-expired"))
	}
	servers.Eventually(t, "the board shows it", func() bool { return onBoard(s, id, "sold") == 1 && onBoard(s, id, "available") == 9 })
	for _, sweep := range s.Sweeps() {
		if sweep.LastReport != nil {
			t.Errorf("%s has run: the test does not test", sweep.Name)
		}
	}
}

// TestNoClientSeesOrChangesWhatIsAnothers has what another user may not. Apps act for users: as another user an app has
// no such hold either, as hers it has.
func TestAHoldIsItsUsersOwn(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(4)
	mina, otto, at := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", ""), []shape.Position{fixture.At(4, 1)}
	hers := s.MustHold(fleet.HoldOrder{Campaign: id, User: "mina", Credential: mina, At: []shape.Position{fixture.At(3, 2)}})
	wantAnswer(t, "for somebody else", s.Hold(fleet.HoldOrder{Campaign: id, User: "mina", Credential: otto, At: at}).Answer, 403, coded("forbidden"))
	wantAnswer(t, "a viewer's", s.Hold(fleet.HoldOrder{Campaign: id, User: "v", Credential: fleet.TokenFor(t, "v", "public"), At: at}).Answer, 403)
	wantAnswer(t, "another user buys it", s.BuyChosen(0, id, "otto", hers.ID), job.Failed, coded("not-found"))
	wantAnswer(t, "she buys it in another campaign", s.BuyChosen(0, s.Campaign(4), "mina", hers.ID), job.Failed, coded("not-found"))
	if h := s.Extend(s.App, hers.ID); h.Status != http.StatusOK || h.State != "active" || h.Extensions != 1 || !h.ExpiresAt.After(hers.ExpiresAt) {
		t.Errorf("an app extends it for her: %v", h)
	}
	bought := s.BuyChosen(0, id, "mina", hers.ID)
	if h := s.HoldNow(mina, hers.ID); !reflect.DeepEqual(bought.Result.Positions, []shape.Position{fixture.At(3, 2)}) || h.State != "used" || h.PurchaseID == nil || *h.PurchaseID != bought.Result.PurchaseID {
		t.Errorf("she buys it: %v %s; it is %v", bought, bought.Body, h)
	}
	wantAnswer(t, "she gives back what she bought", s.Release(mina, hers.ID), coded("state-conflict"))
}

func TestWhatCannotBeHeldSaysWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_HOLDS_MAX_PER_USER=1")
	path, _ := sells(s, nil) // of six positions
	first := fleet.Fields{"user_id": "mina", "positions": []fleet.Fields{{"layer": 1, "column": 1}}}
	mustAnswer(t, "", s.Execute(path+"/holds", first), coded(""))
	for code, body := range map[string]fleet.Fields{
		"position-taken":      {"user_id": "otto", "positions": first["positions"]},
		"hold-limit-exceeded": {"user_id": "mina", "quantity": 1},
		"none-available":      {"user_id": "otto", "quantity": 6},
	} {
		wantAnswer(t, code, s.Execute(path+"/holds", body), coded(code))
	}
}

func TestAHoldKeepsWhatItsRequestSaysForWhomAndAsLong(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, nil)
	type held struct {
		Positions []struct{ Layer, Column int }
		CreatedAt time.Time `json:"created_at"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	drawn := s.Execute(path+"/holds", fleet.Fields{"user_id": "mina", "layer": 3, "quantity": 2, "ttl_seconds": 77})
	h := fleet.As[held](t, drawn)
	if len(h.Positions) != 2 || h.Positions[0].Layer != 3 || h.Positions[1].Layer != 3 || h.ExpiresAt.Sub(h.CreatedAt) != 77*time.Second {
		t.Errorf("two of layer 3: %+v", h)
	}
	chosen := fleet.As[held](t, s.Execute(path+"/holds", fleet.Fields{"user_id": "otto", "positions": []fleet.Fields{{"layer": 2, "column": 2}}}))
	if len(chosen.Positions) != 1 || chosen.Positions[0].Layer != 2 || chosen.Positions[0].Column != 2 || chosen.ExpiresAt.Sub(chosen.CreatedAt) != 10*time.Minute {
		t.Errorf("the second of layer 2: %+v", chosen)
	}
	extended := fleet.As[held](t, s.Execute("/v1/holds/"+drawn.ID.String()+"/extend", fleet.Fields{"ttl_seconds": 500}))
	if lasts := extended.ExpiresAt.Sub(h.CreatedAt); lasts < 500*time.Second {
		t.Errorf("extended by 500 s it lasts %s", lasts)
	}
	for user, code := range map[string]string{"otto": "not-found", "mina": ""} {
		if a := buys(s, path, user, fleet.Fields{"hold_id": drawn.ID}, external); a.Refusal() != code || code == "" && a.Result.Positions[0].Layer != 3 {
			t.Errorf("%s buys it: %v", user, a)
		}
	}
}

func TestWhatBecomesOfHoldsAndLocksIsCounted(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	s := fleet.Start(t, fleet.Options{Schedulers: -1, WorkerEnv: []string{"TRIPRIZE_WORKER_LISTEN=" + address}, Env: []string{"TRIPRIZE_LOCKS_TIMEOUT=4m", "TRIPRIZE_LOCKS_TTL=10m"}})
	s.URLs = append(s.URLs, "http://"+address)
	id := s.Campaign(4)
	for _, series := range []string{"triprize_lock_conflicts_total", "triprize_lock_lost_total", "triprize_requests_replayed_total"} {
		if n := s.Metric(0, series); n != 0 {
			t.Errorf("%s begins at %.0f", series, n)
		}
	}
	used := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(3, 2)}})
	s.Hold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(3, 2)}}) // a replay
	released := s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(4, 1)}})
	if a := s.Release(s.App, released.ID); a.Status != http.StatusNoContent {
		t.Error(a)
	}
	if a := s.Release(s.App, released.ID); a.Status != http.StatusNoContent { // again: counted once
		t.Error(a)
	}
	if h := s.Extend(s.App, used.ID); h.Status != http.StatusOK {
		t.Error(h)
	}
	over := s.MustHold(fleet.HoldOrder{Campaign: id, User: "c", At: []shape.Position{fixture.At(4, 2)}, TTL: 1})
	servers.Eventually(t, "it is over", func() bool { return s.HoldNow(s.App, over.ID).State == "expired" })
	swept := s.MustHold(fleet.HoldOrder{Campaign: id, User: "d", At: []shape.Position{fixture.At(4, 2)}, TTL: 1}) // reclaims the one before
	servers.Eventually(t, "it is over", func() bool { return s.HoldNow(s.App, swept.ID).State == "expired" })
	s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil)
	s.AwaitMetric(0, `triprize_lock_wait_seconds_count{outcome="acquired"}`, 4)
	key := s.Settings.Redis.Namespace + ":lock:position:" + id.String() + ":1/1"
	servers.NoError(t, s.Redis.Set(t.Context(), key, "of another", time.Hour).Err())
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "e", At: []shape.Position{fixture.At(1, 1)}})
	if a := s.BuyChosen(0, id, "a", used.ID); a.State != job.Succeeded {
		t.Error(a)
	}
	s.AwaitMetric(1, `triprize_holds_total{event="used"}`, 1) // the worker did that
	for series, want := range map[string]float64{
		`triprize_holds_total{event="made"}`: 5, `triprize_holds_total{event="released"}`: 1, `triprize_holds_total{event="extended"}`: 1,
		`triprize_holds_total{event="reclaimed"}`: 1, `triprize_holds_total{event="expired"}`: 1, `triprize_holds_total{event="used"}`: 0,
		"triprize_requests_replayed_total": 1, "triprize_lock_conflicts_total": 3, `triprize_lock_wait_seconds_count{outcome="taken"}`: 1,
	} {
		if n := s.Metric(0, series); n != want {
			t.Errorf("%s is %.0f, want %.0f", series, n, want)
		}
	}
}
