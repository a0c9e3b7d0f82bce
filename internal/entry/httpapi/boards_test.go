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
	readers := map[string]string{"an operator": s.Operator, "an app": s.App, "a user": fleet.TokenFor(t, "z", ""), "a viewer": fleet.TokenFor(t, "v", "viewer")}
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
		if a := readAs(s, 1, s.App, fmt.Sprintf("/v1/campaigns/%s/positions?min_version=%d", id, version), old.Header.Get("ETag")); a.Status != http.StatusOK {
			t.Errorf("with the tag of an older version: %v", a)
		}
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
		if again := readAs(s, 0, s.App, path, tag); again.Status != http.StatusNotModified {
			t.Errorf("again: %v", again)
		}
		s.MustHold(fleet.HoldOrder{Campaign: id, User: want, At: []shape.Position{fixture.At(3, map[string]int{"available": 2, "held": 1}[want])}})
	}
}

// However many versions are invented, a process reads a board ten times a second at most.
func TestInventedVersionsAreRefusedAndCostLittle(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.With("TRIPRIZE_POSTGRES_URL=" + tapped.URL)
	id := s.Campaign(6)
	path := "/v1/campaigns/" + id.String() + "/positions"
	const read = "WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col"
	before, begun := tapped.Count(read), time.Now()
	fleet.Together(50, func(i int) {
		for n := range 10 {
			a := readAs(s, 1, s.App, fmt.Sprintf("%s?min_version=%d", path, int64(1)<<(20+i%40)+int64(n)), "")
			if a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
				t.Errorf("an invented version: %v %s", a, a.Body)
			}
			fleet.CheckProblem(t, a)
			if a := readAs(s, 1, s.App, fmt.Sprintf("%s?since=%d", path, int64(1)<<(20+i%40)+int64(n)), ""); a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
				t.Errorf("since an invented version: %v %s", a, a.Body)
			}
		}
	})
	if n, most := tapped.Count(read)-before, int(time.Since(begun).Milliseconds()/100)+2; n > most {
		t.Errorf("1,000 inventions were %d reads within %s, want at most %d", n, time.Since(begun), most)
	}
	for _, bad := range []string{"min_version=-1", "min_version=x", "min_version=9223372036854775808", "since=-1", "since=1.5", "since="} {
		if a := readAs(s, 1, s.App, path+"?"+bad, ""); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %v", bad, a)
		}
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
	if a := s.Extend(s.App, h.ID); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	expect("an extension", 2)
	if a := s.Release(s.App, h.ID); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	expect("a release", 2)
	kept := s.MustHold(fleet.HoldOrder{Campaign: id, User: "mina", At: []shape.Position{fixture.At(6, 2), fixture.At(6, 3), fixture.At(6, 4)}})
	if a := s.Buy(fleet.Order{Campaign: id, User: "mina", Hold: kept.ID, Wait: true}); a.State != job.Succeeded {
		t.Fatal(a)
	}
	expect("a hold that was bought", 3)
	bought := s.Buy(fleet.Order{Campaign: id, User: "b", Quantity: 4, Wait: true})
	if bought.State != job.Succeeded {
		t.Fatal(bought)
	}
	expect("a purchase", 4)
	if a := s.Cancel(s.App, bought.Result.PurchaseID, uuid.NewString(), ""); a.State != job.Succeeded {
		t.Fatal(a)
	}
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
	if a := s.BuyChosen(0, id, "d", uuid.Nil, fixture.At(8, 8)); a.State != job.Succeeded {
		t.Fatal(a)
	}
	expect("a sale that ends this hold", 2)
	over("e", fixture.At(2, 1))
	over("f", fixture.At(2, 2))
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
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
	if a := s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+id.String()+"/positions/1/1", nil, nil); !fleet.Contains(a.Body, `"state":"unsold"`) {
		t.Errorf("one position: %s", a.Body)
	}
}
