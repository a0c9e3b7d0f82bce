package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// saleEvent is what an event of a campaign says.
type saleEvent struct {
	Positions    struct{ Total, Available, Reserved, Sold int }
	BoardVersion int64 `json:"board_version"`
}

// awaitSale reads events until one is as it should be, and returns it.
func (l *listener) awaitSale(what string, good func(saleEvent) bool) saleEvent {
	l.t.Helper()
	for {
		f, more := l.event()
		if !more {
			l.t.Fatalf("the stream has ended before: %s", what)
		}
		var e saleEvent
		if err := json.Unmarshal([]byte(f.data), &e); err != nil {
			l.t.Fatal(err, f)
		}
		if good(e) {
			return e
		}
	}
}

// stateOf is what the board and the position itself say of a position.
func (s *system) stateOf(campaign uuid.UUID, at string) (state string) {
	s.t.Helper()
	var p struct{ State string }
	a := s.do(0, s.app, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/positions/"+at, nil, nil)
	if err := json.Unmarshal(a.body, &p); err != nil {
		s.t.Fatal(err, a)
	}
	return p.State
}

// onBoard counts the positions of the board that are in a state.
func (s *system) onBoard(campaign uuid.UUID, state string) int {
	a := s.do(0, s.app, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/positions", nil, nil)
	return strings.Count(string(a.body), `"state":"`+state+`"`)
}

func TestWithoutAnySweepAHoldIsOverAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := start(t, options{schedulers: -1, env: []string{"TRIPRIZE_STREAMS_INTERVAL=20ms"}})
	id, at := s.campaign(4), place{3, 2}
	l := s.listen(0, s.app, campaignEvents(id), "")
	first := s.mustHold(ask{campaign: id, user: "first", at: []place{at}, ttl: 1})
	if a := s.buyChosen(0, id, "second", uuid.Nil, at); !a.takenAt(at) {
		t.Errorf("before the deadline: %v %s", a, a.body)
	}
	l.awaitSale("held", func(e saleEvent) bool { return e.Positions.Reserved == 1 && e.Positions.Available == 9 })
	l.awaitSale("free", func(e saleEvent) bool { return e.Positions.Reserved == 0 && e.Positions.Available == 10 })
	if early := time.Until(first.ExpiresAt); early > 0 { // one clock: it is the same machine
		t.Errorf("free %s before the deadline", early)
	}
	if state, c := s.stateOf(id, "3/2"), s.view(s.do(0, s.app, http.MethodGet, "/v1/campaigns/"+id.String(), nil, nil), http.StatusOK); state != "available" || c.Positions.Reserved != 0 {
		t.Errorf("at the deadline the position is %s, the counts are %+v", state, c.Positions)
	}
	if h := s.holdNow(s.app, first.ID); h.State != "expired" {
		t.Errorf("at the deadline: %v", h)
	}
	if a := s.buyChosen(0, id, "second", uuid.Nil, at); a.State != job.Succeeded {
		t.Errorf("another buys it: %v %s", a, a.body)
	}
	for what, a := range map[string]answer{"extend": s.extend(s.app, first.ID).answer, "release": s.release(s.app, first.ID), "buy": s.buyChosen(0, id, "first", first.ID)} {
		if a.code() != "hold-expired" {
			t.Errorf("%s, late: %v %s", what, a, a.body)
		}
	}
	eventually(t, 10*time.Second, "the board shows it", func() bool { return s.onBoard(id, "sold") == 1 && s.onBoard(id, "available") == 9 })
	for _, sweep := range s.sweeps() {
		if sweep.LastReport != nil {
			t.Errorf("%s has run: the test does not test", sweep.Name)
		}
	}
}

func TestTheSweepTidiesUpWhatIsOverAndReportsIt(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	id := s.campaign(4)
	over := s.mustHold(ask{campaign: id, user: "a", at: []place{{3, 2}, {4, 1}}, ttl: 1})
	lasting := s.mustHold(ask{campaign: id, user: "b", at: []place{{4, 2}}})
	before := s.campaignNow(id).BoardVersion
	if _, err := s.StartScheduler("TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=100ms"); err != nil {
		t.Fatal(err)
	}
	recorded := func(id uuid.UUID) (state string) {
		if err := s.db.QueryRow(t.Context(), `SELECT state FROM holds WHERE id = $1`, id).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	eventually(t, 20*time.Second, "it is tidied up", func() bool { return recorded(over.ID) == "expired" })
	var counter, rows int
	if err := s.db.QueryRow(t.Context(), `
		SELECT positions_reserved, (SELECT count(*) FROM positions WHERE campaign_id = c.id AND state = 'held') FROM campaigns c WHERE id = $1`, id).Scan(&counter, &rows); err != nil || counter != 1 || rows != 1 {
		t.Errorf("the counter is %d, %d are held, %v", counter, rows, err)
	}
	if h := s.holdNow(s.app, over.ID); h.State != "expired" || h.EndedAt == nil || h.EndedAt.Before(h.ExpiresAt) {
		t.Errorf("%v", h)
	}
	if recorded(lasting.ID) != "active" || s.campaignNow(id).BoardVersion <= before {
		t.Errorf("the other hold is %s, the board's version %d after %d", recorded(lasting.ID), s.campaignNow(id).BoardVersion, before)
	}
	// The next run reports on nothing; so the report is asked of one that is run by hand.
	again := s.mustHold(ask{campaign: id, user: "c", at: []place{{1, 1}}, ttl: 1})
	for _, scheduler := range s.Schedulers {
		if err := scheduler.Stop(terminate, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, "it is over", func() bool { return s.holdNow(s.app, again.ID).State == "expired" })
	if s.do(0, s.operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil); recorded(again.ID) != "expired" {
		t.Errorf("it is %s", recorded(again.ID))
	}
	for _, sweep := range s.sweeps() {
		if c := sweep.LastReport; sweep.Name == "expired-holds" && (c == nil || c.Counts["expired"] != 1 || c.Counts["freed"] != 1 || c.Counts["campaigns"] != 1) {
			t.Errorf("the report: %+v", c)
		}
	}
}

func TestTheEventStreamTellsOfHoldsReleasesExpiriesAndSwaps(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1, env: []string{"TRIPRIZE_STREAMS_INTERVAL=20ms", lively}})
	id := s.campaign(4)
	l := s.listen(0, s.app, campaignEvents(id), "")
	version := l.awaitSale("as it is", func(saleEvent) bool { return true }).BoardVersion
	told := func(what string, reserved int) {
		t.Helper()
		e := l.awaitSale(what, func(e saleEvent) bool { return e.BoardVersion > version })
		if e.Positions.Reserved != reserved || e.Positions.Available != 10-reserved {
			t.Errorf("%s: %+v", what, e)
		}
		version = e.BoardVersion
	}
	h := s.mustHold(ask{campaign: id, user: "a", at: []place{{3, 2}, {4, 1}}})
	told("a hold", 2)
	if a := s.extend(s.app, h.ID); a.status != http.StatusOK {
		t.Fatal(a)
	}
	told("an extension", 2)
	if a := s.release(s.app, h.ID); a.status != http.StatusNoContent {
		t.Fatal(a)
	}
	told("a release", 0)
	s.mustHold(ask{campaign: id, user: "b", at: []place{{1, 1}}, ttl: 1})
	told("a short hold", 1)
	l.awaitSale("its end", func(e saleEvent) bool { return e.Positions.Reserved == 0 && e.Positions.Available == 10 })
}

// What was let go is held by another, elsewhere: the counts are the same.
func TestTheEventStreamTellsOfASwapThatLeavesTheCountsEqual(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1, env: []string{lively}})
	id := s.campaign(4)
	h := s.mustHold(ask{campaign: id, user: "a", at: []place{{2, 1}}})
	before := s.listen(0, s.app, campaignEvents(id), "")
	seen := before.wantEvent()
	before.hangUp()
	if a := s.release(s.app, h.ID); a.status != http.StatusNoContent {
		t.Fatal(a)
	}
	s.mustHold(ask{campaign: id, user: "b", at: []place{{3, 3}}})
	l := s.listen(0, s.app, campaignEvents(id), seen.id)
	next := l.wantEvent()
	var was, is saleEvent
	if err := json.Unmarshal([]byte(seen.data), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(next.data), &is); err != nil {
		t.Fatal(err)
	}
	if is.Positions != was.Positions || is.Positions.Reserved != 1 || is.BoardVersion <= was.BoardVersion || next.id == seen.id {
		t.Errorf("%+v, and then %+v", seen, next)
	}
	l.wantSilence(2)
}
