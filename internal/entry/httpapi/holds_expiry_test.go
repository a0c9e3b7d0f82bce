package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

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
func stateOf(s *fleet.System, campaign uuid.UUID, at string) (state string) {
	s.T.Helper()
	var p struct{ State string }
	a := s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/positions/"+at, nil, nil)
	if err := json.Unmarshal(a.Body, &p); err != nil {
		s.T.Fatal(err, a)
	}
	return p.State
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
	if a := s.BuyChosen(0, id, "second", uuid.Nil, at); a.State != job.Succeeded {
		t.Errorf("another buys it: %v %s", a, a.Body)
	}
	for what, a := range map[string]fleet.Answer{"extend": s.Extend(s.App, first.ID).Answer, "release": s.Release(s.App, first.ID), "buy": s.BuyChosen(0, id, "first", first.ID)} {
		if a.Refusal() != "hold-expired" {
			t.Errorf("%s, late: %v %s", what, a, a.Body)
		}
	}
	servers.Eventually(t, "the board shows it", func() bool { return onBoard(s, id, "sold") == 1 && onBoard(s, id, "available") == 9 })
	for _, sweep := range s.Sweeps() {
		if sweep.LastReport != nil {
			t.Errorf("%s has run: the test does not test", sweep.Name)
		}
	}
}

func TestTheSweepTidiesUpWhatIsOverAndReportsIt(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(4)
	over := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", At: []shape.Position{fixture.At(3, 2), fixture.At(4, 1)}, TTL: 1})
	lasting := s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(4, 2)}})
	before := s.CampaignNow(id).BoardVersion
	s.RunScheduler("TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=100ms")
	recorded := func(id uuid.UUID) (state string) {
		if err := s.DB.QueryRow(t.Context(), `SELECT state FROM holds WHERE id = $1`, id).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	servers.Eventually(t, "it is tidied up", func() bool { return recorded(over.ID) == "expired" })
	var counter, rows int
	if err := s.DB.QueryRow(t.Context(), `
		SELECT positions_reserved, (SELECT count(*) FROM positions WHERE campaign_id = c.id AND state = 'held') FROM campaigns c WHERE id = $1`, id).Scan(&counter, &rows); err != nil || counter != 1 || rows != 1 {
		t.Errorf("the counter is %d, %d are held, %v", counter, rows, err)
	}
	if h := s.HoldNow(s.App, over.ID); h.State != "expired" || h.EndedAt == nil || h.EndedAt.Before(h.ExpiresAt) {
		t.Errorf("%v", h)
	}
	if recorded(lasting.ID) != "active" || s.CampaignNow(id).BoardVersion <= before {
		t.Errorf("the other hold is %s, the board's version %d after %d", recorded(lasting.ID), s.CampaignNow(id).BoardVersion, before)
	}
	// The next run reports on nothing; so the report is asked of one that is run by hand.
	again := s.MustHold(fleet.HoldOrder{Campaign: id, User: "c", At: []shape.Position{fixture.At(1, 1)}, TTL: 1})
	s.StopAll("scheduler")
	servers.Eventually(t, "it is over", func() bool { return s.HoldNow(s.App, again.ID).State == "expired" })
	if s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil); recorded(again.ID) != "expired" {
		t.Errorf("it is %s", recorded(again.ID))
	}
	for _, sweep := range s.Sweeps() {
		if c := sweep.LastReport; sweep.Name == "expired-holds" && (c == nil || c.Counts["expired"] != 1 || c.Counts["freed"] != 1 || c.Counts["campaigns"] != 1) {
			t.Errorf("the report: %+v", c)
		}
	}
}

func TestTheEventStreamTellsOfHoldsReleasesExpiriesAndSwaps(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	version := awaitSale(t, l, "as it is", func(saleEvent) bool { return true }).BoardVersion
	told := func(what string, reserved int) {
		t.Helper()
		e := awaitSale(t, l, what, func(e saleEvent) bool { return e.BoardVersion > version })
		if e.Positions.Reserved != reserved || e.Positions.Available != 10-reserved {
			t.Errorf("%s: %+v", what, e)
		}
		version = e.BoardVersion
	}
	h := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", At: []shape.Position{fixture.At(3, 2), fixture.At(4, 1)}})
	told("a hold", 2)
	if a := s.Extend(s.App, h.ID); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	told("an extension", 2)
	if a := s.Release(s.App, h.ID); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	told("a release", 0)
	h = s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(1, 1)}})
	told("another hold", 1)
	fixture.EndHold(t, s.DB, inventory.Hold{ID: h.ID, CampaignID: id})
	awaitSale(t, l, "its end", func(e saleEvent) bool { return e.Positions.Reserved == 0 && e.Positions.Available == 10 })
}

// What was let go is held by another, elsewhere: the counts are the same.
func TestTheEventStreamTellsOfASwapThatLeavesTheCountsEqual(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	h := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", At: []shape.Position{fixture.At(2, 1)}})
	before := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	seen := before.WantEvent()
	before.HangUp()
	if a := s.Release(s.App, h.ID); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(3, 3)}})
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), seen.ID)
	next := l.WantEvent()
	var was, is saleEvent
	if err := json.Unmarshal([]byte(seen.Data), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(next.Data), &is); err != nil {
		t.Fatal(err)
	}
	if is.Positions != was.Positions || is.Positions.Reserved != 1 || is.BoardVersion <= was.BoardVersion || next.ID == seen.ID {
		t.Errorf("%+v, and then %+v", seen, next)
	}
	l.WantSilence(2)
}
