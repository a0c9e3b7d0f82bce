package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// boardSeen is what a client knows of a board.
type boardSeen struct {
	Version   int64  `json:"board_version"`
	Since     *int64 `json:"since"`
	Positions []struct {
		shape.Position
		State  string
		UserID string `json:"user_id"`
	}

	states map[shape.Position]string
}

// readBoard reads a board as somebody.
func readBoard(s *fleet.System, api int, key string, campaign uuid.UUID, query string) (b boardSeen) {
	s.T.Helper()
	a := s.Do(api, key, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/positions"+query, nil, nil)
	if err := json.Unmarshal(a.Body, &b); err != nil || a.Status != http.StatusOK {
		s.T.Fatalf("%s: %v %s", query, a, fleet.Tail(a.Body, 300))
	}
	if !strings.HasPrefix(a.Header.Get("ETag"), fmt.Sprintf(`W/"%d-`, b.Version)) {
		s.T.Errorf("the tag of version %d is %s", b.Version, a.Header.Get("ETag"))
	}
	return b
}

// apply brings what is known up to date.
func (b *boardSeen) apply(next boardSeen) {
	if next.Since == nil {
		b.states = make(map[shape.Position]string)
	}
	b.Version = next.Version
	for _, p := range next.Positions {
		b.states[p.Position] = p.State
	}
}

// heldUnseen holds a position behind the back of every process's copy: all copies are
// young, and show it free.
func heldUnseen(s *fleet.System, campaign uuid.UUID, user string, at shape.Position) (version int64) {
	s.T.Helper()
	for api := range s.URLs {
		readBoard(s, api, s.App, campaign, "")
	}
	s.MustHold(fleet.HoldOrder{Campaign: campaign, User: user, At: []shape.Position{at}})
	return s.CampaignNow(campaign).BoardVersion
}

func TestABoardIsNeverOlderThanAsked(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(6)
	readers := map[string]string{"an operator": s.Operator, "an app": s.App, "a user": fleet.TokenFor(t, "z", ""), "a viewer": fleet.TokenFor(t, "v", "public")}
	for i := range 4 {
		at := fixture.At(6, i+1)
		old := readAs(s, 1, s.App, "/v1/campaigns/"+id.String()+"/positions", "")
		version := heldUnseen(s, id, fmt.Sprint("u", i), at)
		for who, key := range readers {
			for api := range 2 {
				var seen boardSeen
				seen.apply(readBoard(s, api, key, id, fmt.Sprintf("?min_version=%d", version)))
				if seen.Version < version || seen.states[at] != "held" {
					t.Errorf("%s asks api %d for version %d and gets %d, where it is %s", who, api, version, seen.Version, seen.states[at])
				}
			}
		}
		for _, invented := range []string{"min_version", "since"} {
			wantAnswer(t, invented+" of no version yet", readAs(s, 1, s.App, fmt.Sprintf("/v1/campaigns/%s/positions?%s=%d", id, invented, version+1000), ""), 409, coded("state-conflict"))
		}
		wantAnswer(t, "with the tag of an older version", readAs(s, 1, s.App, fmt.Sprintf("/v1/campaigns/%s/positions?min_version=%d", id, version), old.Header.Get("ETag")), 200)
	}
}

func TestAPositionSaysAsOfWhenItIs(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/positions/3/2"
	for _, want := range []string{"available", "held"} {
		a := readAs(s, 0, s.App, path, "")
		version, tag := s.CampaignNow(id).BoardVersion, a.Header.Get("ETag")
		if a.Status != http.StatusOK || !fleet.Contains(a.Body, `"state":"`+want+`"`) || !fleet.Contains(a.Body, fmt.Sprintf(`"board_version":%d`, version)) ||
			!strings.HasPrefix(tag, fmt.Sprintf(`W/"%d-`, version)) {
			t.Errorf("%v %s %s", a, tag, a.Body)
		}
		wantAnswer(t, "again", readAs(s, 0, s.App, path, tag), 304)
		s.MustHold(fleet.HoldOrder{Campaign: id, User: want, At: []shape.Position{fixture.At(3, map[string]int{"available": 2, "held": 1}[want])}})
	}
}

// A client that has once seen the board, and since then only what has changed, has the
// board as it is, in every case.
func TestWhatHasChangedSinceIsAllThatHasChanged(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Schedulers: -1, Env: fleet.Trusting.Env}) // no sweep changes anything meanwhile
	id := s.Campaign(8)
	mina := fleet.TokenFor(t, "mina", "")
	clients := map[string]*boardSeen{s.App: {}, mina: {}, s.Operator: {}}
	for key, seen := range clients {
		seen.apply(readBoard(s, 0, key, id, ""))
	}
	step := 0
	expect := func(what string, changed int) {
		t.Helper()
		step++
		now, want := s.CampaignNow(id).BoardVersion, boardSeen{}
		want.apply(readBoard(s, 0, s.Operator, id, ""))
		for key, seen := range clients {
			next := readBoard(s, step%2, key, id, fmt.Sprintf("?since=%d&min_version=%d", seen.Version, now))
			isWhole := next.Since == nil && seen.Version > 0
			if isWhole || next.Since != nil && (*next.Since != seen.Version || len(next.Positions) != changed) {
				t.Errorf("%s: since %d it is %+v", what, seen.Version, next)
			}
			for _, p := range next.Positions {
				if key == s.App && p.UserID != "" {
					t.Errorf("%s: an app sees whose it is: %+v", what, p)
				}
			}
			if seen.apply(next); !maps.Equal(seen.states, want.states) || seen.Version != now {
				t.Errorf("%s: at %d, it is at %d: %v, want %v", what, seen.Version, now, seen.states, want.states)
			}
		}
	}
	h := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", At: []shape.Position{fixture.At(8, 2), fixture.At(7, 1)}})
	expect("a hold", 2)
	expect("nothing", 0)
	mustAnswer(t, "", s.Extend(s.App, h.ID).Answer, 200)
	expect("an extension", 2)
	mustAnswer(t, "", s.Release(s.App, h.ID), 204)
	expect("a release", 2)
	kept := s.MustHold(fleet.HoldOrder{Campaign: id, User: "mina", At: []shape.Position{fixture.At(6, 2), fixture.At(6, 3), fixture.At(6, 4)}})
	mustAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "mina", Hold: kept.ID, Wait: true}), job.Succeeded)
	expect("a hold that was bought", 3)
	bought := s.Buy(fleet.Order{Campaign: id, User: "b", Quantity: 4, Wait: true})
	mustAnswer(t, "", bought, job.Succeeded)
	expect("a purchase", 4)
	mustAnswer(t, "", s.Cancel(s.App, bought.Result.PurchaseID, uuid.NewString(), ""), job.Succeeded)
	expect("a cancellation", 4)
	over := func(user string, at shape.Position) {
		h := s.MustHold(fleet.HoldOrder{Campaign: id, User: user, At: []shape.Position{at}})
		fixture.EndHoldMeanwhile(t, s.DB, fixture.HoldNow(t, s.DB, h.ID))
	}
	over("c", fixture.At(1, 1))
	expect("a hold whose time is over", 1)
	servers.Eventually(t, "it is told again, as no version tells of it", func() bool {
		b := readBoard(s, 0, s.App, id, fmt.Sprintf("?since=%d", clients[s.App].Version))
		return len(b.Positions) == 1 && b.Positions[0].State == "available"
	})
	mustAnswer(t, "", s.BuyChosen(0, id, "d", uuid.Nil, fixture.At(8, 8)), job.Succeeded)
	expect("a sale that ends this hold", 2)
	over("e", fixture.At(2, 1))
	over("f", fixture.At(2, 2))
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil), 200)
	expect("a sweep", 2)
	expect("nothing after a sweep", 0)
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/cancel", map[string]string{"Idempotency-Key": "off", "Prefer": fleet.UntilFinal},
		fleet.Fields{"reason": "a fire"}); a.State != job.Succeeded {
		t.Fatalf("%v %s", a, a.Body)
	}
	for key, seen := range clients {
		seen.apply(readBoard(s, 0, key, id, fmt.Sprintf("?since=%d&min_version=%d", seen.Version, s.CampaignNow(id).BoardVersion)))
		for at, state := range seen.states {
			if state != "unsold" {
				t.Errorf("the campaign is cancelled, and %v is %s", at, state)
			}
		}
	}
	wantAnswer(t, "one position", s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+id.String()+"/positions/1/1", nil, nil), `"state":"unsold"`)
}

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
func watch(t *testing.T, l *fleet.Listener) (seen boardSeen) {
	events := 0
	for f, more := l.Event(); more; f, more = l.Event() {
		e := boardIn(t, f)
		events++
		switch {
		case e.Board == nil, e.Board.Version < e.BoardVersion:
			t.Errorf("an event of version %d has %+v", e.BoardVersion, e.Board)
			return seen
		case events == 1 && e.Board.Since != nil, events > 1 && e.Board.Since != nil && *e.Board.Since != seen.Version:
			t.Errorf("event %d goes on from %d, not from %d", events, *e.Board.Since, seen.Version)
		}
		seen.apply(*e.Board)
	}
	return seen
}

// The board is read for events and not for viewers.
func TestViewersOfALiveBoardHaveItAndShareItsReads(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunAPI("TRIPRIZE_POSTGRES_URL="+tapped.URL, "TRIPRIZE_STREAMS_INTERVAL=20ms")
	id := s.Campaign(8) // 36 positions
	begun, viewers := time.Now(), make([]*fleet.Listener, 30)
	for i := range viewers {
		viewers[i] = s.Listen(2, s.App, boardEvents(id), "")
	}
	all := make(chan boardSeen, len(viewers))
	for _, l := range viewers {
		go func() { all <- watch(t, l) }()
	}
	for bought := range 36 {
		if bought%5 == 0 {
			h := s.MustHold(fleet.HoldOrder{Campaign: id, User: "h", Quantity: 1})
			mustAnswer(t, "", s.Release(s.App, h.ID), 204)
		}
		mustAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}), job.Succeeded)
	}
	var want boardSeen
	want.apply(readBoard(s, 0, s.Operator, id, ""))
	for range viewers {
		if one := <-all; !maps.Equal(one.states, want.states) {
			t.Errorf("at version %d a viewer has %v", one.Version, one.states)
		}
	}
	most := int(want.Version + int64(time.Since(begun).Seconds())) // a copy is read again for each version, and when it is a second old
	if n := tapped.Count("WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col"); n < 1 || n > most+5 {
		t.Errorf("%d reads of the board for %d viewers of %d versions", n, len(viewers), want.Version)
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
	mustAnswer(t, "", s.Post("/v1/campaigns/"+id.String()+"/publish", nil), 200)
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "0", At: []shape.Position{fixture.At(63, 5)}}) // version 0 is that of who has seen nothing
	if e := boardIn(t, s.Listen(0, s.App, boardEvents(id), "").WantEvent()); e.Board != nil {
		t.Errorf("the first event has %d positions", len(e.Board.Positions))
	}
	c, err := client.New(s.URLs[0], s.App)
	servers.NoError(t, err)
	states, versions := make(map[shape.Position]client.PositionState), []int64{}
	for e, err := range c.FollowBoard(t.Context(), id) {
		servers.NoError(t, err)
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
		wantEqual(t, fmt.Sprintf("63/%d is", column+1), states[fixture.At(63, column+1)], want)
	}
}
