package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// boardEvents is the path of a stream that brings positions.
func boardEvents(id uuid.UUID) string { return fleet.CampaignEvents(id) + "?positions=true" }

// boardIn is what an event says of the board.
func boardIn(t *testing.T, f fleet.Frame) (e struct {
	State        string
	BoardVersion int64 `json:"board_version"`
	Board        *boardSeen
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(f.Data), &e); err != nil || f.Name != "campaign" || fleet.Contains([]byte(f.Data), "user_id") {
		t.Fatal(f, err)
	}
	return e
}

// watch follows a board by its stream alone, to the end of the campaign. At every event
// it must have all that has happened by then.
func watch(t *testing.T, l *fleet.Listener) (seen boardSeen, events int) {
	for f, more := l.Event(); more; f, more = l.Event() {
		e := boardIn(t, f)
		events++
		switch {
		case e.Board == nil, e.Board.Version < e.BoardVersion:
			t.Errorf("an event of version %d has %+v", e.BoardVersion, e.Board)
			return seen, events
		case events == 1 && e.Board.Since != nil, events > 1 && e.Board.Since != nil && *e.Board.Since != seen.Version:
			t.Errorf("event %d goes on from %d, not from %d", events, *e.Board.Since, seen.Version)
		}
		seen.apply(*e.Board)
	}
	return seen, events
}

// The board is read for events and not for viewers.
func TestViewersOfALiveBoardHaveItAndShareItsReads(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunAPI("TRIPRIZE_POSTGRES_URL="+tapped.URL, "TRIPRIZE_STREAMS_INTERVAL=20ms")
	id := s.Campaign(8) // 36 positions
	type seen struct {
		board  boardSeen
		events int
	}
	viewers := make([]*fleet.Listener, 30)
	for i := range viewers {
		viewers[i] = s.Listen(2, s.App, boardEvents(id), "")
	}
	all := make(chan seen, len(viewers))
	for _, l := range viewers {
		go func() { b, n := watch(t, l); all <- seen{b, n} }()
	}
	for bought := range 36 {
		if bought%5 == 0 {
			h := s.MustHold(fleet.HoldOrder{Campaign: id, User: "h", Quantity: 1})
			if a := s.Release(s.App, h.ID); a.Status != http.StatusNoContent {
				t.Fatal(a)
			}
		}
		if a := s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}); a.State != job.Succeeded {
			t.Fatal(a)
		}
	}
	var want boardSeen
	want.apply(readBoard(s, 0, s.Operator, id, ""))
	most := 0
	for range viewers {
		one := <-all
		most = max(most, one.events)
		if !maps.Equal(one.board.states, want.states) {
			t.Errorf("after %d events a viewer has %v", one.events, one.board.states)
		}
	}
	if n := tapped.Count("WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col"); n < 1 || n > most+5 {
		t.Errorf("%d reads of the board for %d viewers with at most %d events", n, len(viewers), most)
	}
}

func TestAViewerThatComesBackGetsWhatItMissed(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(6)
	l := s.Listen(0, s.App, boardEvents(id), "")
	first := l.WantEvent()
	l.HangUp()
	seen := *boardIn(t, first).Board
	seen.apply(seen)
	again := s.Listen(1, s.App, boardEvents(id), first.ID)
	again.WantSilence(2)
	version := heldUnseen(s, id, "a", fixture.At(6, 3))
	next := boardIn(t, again.WantEvent()).Board
	if next == nil || next.Since == nil && seen.Version > 0 || next.Version < version {
		t.Fatalf("it got %+v", next)
	}
	seen.apply(*next)
	second := s.Listen(0, s.App, boardEvents(id), "").WantEvent()
	version = heldUnseen(s, id, "b", fixture.At(5, 1))
	back := boardIn(t, s.Listen(1, s.App, boardEvents(id), second.ID).WantEvent()).Board
	if back == nil || back.Since == nil || len(back.Positions) != 1 || back.Positions[0].Position != fixture.At(5, 1) || back.Version < version {
		t.Errorf("who comes back gets %+v", back)
	}
	plain := s.Listen(1, s.App, fleet.CampaignEvents(id), second.ID) // without positions now
	if f := plain.WantEvent(); fleet.Contains([]byte(f.Data), `"board":`) {
		t.Errorf("not asked for: %+v", f)
	}
	for _, bad := range []string{"positions=yes", "positions=", "positions=1"} {
		if l := s.Listen(0, s.App, fleet.CampaignEvents(id)+"?"+bad, ""); l.Status != http.StatusBadRequest {
			t.Errorf("%s: %v", bad, l.Answer)
		}
	}
}

// 2,016 positions are more than an event brings.
func TestTheClientReadsWhatIsTooMuchForAnEvent(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(63)), http.StatusCreated).ID
	if a := s.Post("/v1/campaigns/"+id.String()+"/publish", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "0", At: []shape.Position{fixture.At(63, 5)}}) // version 0 is that of who has seen nothing
	if e := boardIn(t, s.Listen(0, s.App, boardEvents(id), "").WantEvent()); e.Board != nil {
		t.Errorf("the first event has %d positions", len(e.Board.Positions))
	}
	c, err := client.New(s.URLs[0], s.App)
	if err != nil {
		t.Fatal(err)
	}
	states, versions := make(map[shape.Position]client.PositionState), []int64{}
	for e, err := range c.FollowBoard(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		if whole := e.Board.Since == 0; whole != (len(versions) == 0) || len(e.Board.Positions) != map[bool]int{true: 2016, false: 1}[whole] {
			t.Fatalf("after versions %v: %d positions since %d", versions, len(e.Board.Positions), e.Board.Since)
		}
		for _, p := range e.Board.Positions {
			states[shape.Position{Layer: p.Layer, Column: p.Column}] = p.State
		}
		if versions = append(versions, e.Board.BoardVersion); len(versions) == 4 {
			break
		}
		s.MustHold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint(len(versions)), At: []shape.Position{fixture.At(63, len(versions))}})
	}
	for column, want := range []client.PositionState{"held", "held", "held", "available", "held"} {
		if is := states[fixture.At(63, column+1)]; is != want {
			t.Errorf("63/%d is %s, want %s", column+1, is, want)
		}
	}
}
