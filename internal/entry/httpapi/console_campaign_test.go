package httpapi_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// cells are cells of a table, side by side.
func cells(values ...any) (text string) {
	for _, value := range values {
		text += fmt.Sprintf(`<td class="number">%v</td>`, value)
	}
	return text
}

func TestThePageOfACampaignShowsWhatTheAPISays(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := fixture.Campaign(t, s.DB, fixture.DrawnAtEnd(4, time.Hour)) // 10 positions at 100, 200, 300 and 400 JPY
	bought := s.BuyChosen(0, id, "mina", uuid.Nil, fixture.At(4, 1), fixture.At(4, 2))
	mustAnswer(t, "", bought, http.StatusOK)
	held := s.MustHold(fleet.HoldOrder{Campaign: id, User: "<otto>", At: []shape.Position{fixture.At(3, 3)}})
	mustAnswer(t, "", s.Post("/v1/campaigns/"+id.String()+"/positions/block", fleet.Fields{"positions": []shape.Position{fixture.At(1, 1)}}), http.StatusOK)
	api, err := client.New(s.URLs[0], s.Operator)
	servers.NoError(t, err)
	campaign, err := api.GetCampaign(t.Context(), id)
	servers.NoError(t, err)

	b := signIn(s)
	page := b.get("/campaigns/" + id.String())
	mustAnswer(t, "the page", page, http.StatusOK, `<h1 dir="auto">A campaign</h1>`, "2 of 10 sold · 800 JPY", "7 positions are not sold", campaign.Commitment,
		`<code>`+id.String()+`</code>`, `data-from="/console/campaigns/`+id.String()+`/board" data-shape="triangle"`, `src="/console/static/board.js"`,
		cells(1, 0, 0, 0, 1, "0 JPY"), cells(3, 2, 1, 0, 0, "0 JPY"), cells(4, 2, 0, 2, 0, "800 JPY"), cells(10, 6, 1, 2, 1, "800 JPY"),
		`<a href="/console/purchases/`+bought.Result.PurchaseID.String()+`">`, `<a href="/console/find?q=`+held.ID.String()+`">`, "&lt;otto&gt;", without("<otto>"),
		without("/verify?"))
	if live := b.live("/campaigns/" + id.String()); !fleet.Contains(page.Body, string(live.Body)) {
		t.Errorf("the part that moves is another than that of the page: %v\n%s\n\n%s", live, live.Body, page.Body)
	}
	wantAnswer(t, "paused", b.post("/campaigns/"+id.String()+"/pause", "/reason", "a test"), http.StatusSeeOther)
	wantAnswer(t, "the page at once", b.get("/campaigns/"+id.String()), http.StatusOK, "active, paused")
	draft := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated)
	wantAnswer(t, "a draft", b.get("/campaigns/"+draft.ID.String()), http.StatusOK, "The campaign is a draft.", cells(3, 3, 0, 0, 0, "0 JPY"), without(`id="board"`))
}

func TestThePageOfACampaignFollowsItsDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, purchase := drawnCampaign(s)
	draw := decoded[client.Draw](s, s.Do(0, s.Operator, http.MethodGet, path, nil, nil))
	id := strings.Split(path, "/")[3]
	wanted := []any{http.StatusOK, `href="/verify?campaign=` + id + `"`, draw.Root, draw.Freeze.Hash, draw.Commitment, purchase.String(),
		`The prizes are drawn</strong> <span class="ok">done</span> <time datetime="` + draw.ExecutedAt.UTC().Format(time.RFC3339)}
	for _, w := range draw.Winners {
		wanted = append(wanted, fmt.Sprintf(`%d <bdi>%s</bdi></th><td><bdi>%s</bdi> <small>(%d/%d)</small></td><td dir="auto">%s</td>`, w.Prize, w.Name, w.Label, w.Layer, w.Column, w.UserID))
	}
	wantEqual(t, "winners", len(draw.Winners), 3)
	wantAnswer(t, "the page", signIn(s).get("/campaigns/"+id), wanted...)
}

var nextPage = regexp.MustCompile(`href="/console/campaigns(\?[^"]*)">Next page`)

func TestTheListOfCampaignsHasAStateAndPages(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	draft := func() string {
		return view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	}
	listed := map[string]string{"active": s.Campaign(3).String(), "pending": draft()}
	for range 50 {
		draft()
	}
	b := signIn(s)
	for state, other := range map[string]string{"active": "pending", "pending": "active"} {
		servers.Eventually(t, state+" is listed", func() bool { // another test may have read a page a moment before
			for page := "?state=" + state; page != ""; {
				a, isLater := b.get("/campaigns"+page), strings.Contains(page, "cursor")
				mustAnswer(t, page, a, http.StatusOK, without(listed[other]))
				if fleet.Contains(a.Body, listed[state]) {
					if isLater { // newer campaigns do not move it
						wantAnswer(t, "the part that moves", b.get("/campaigns/live"+page, "HX-Request", "true"), http.StatusOK, listed[state])
					}
					return isLater || state == "active"
				}
				next := nextPage.FindSubmatch(a.Body)
				if page = ""; next != nil {
					page = html.UnescapeString(string(next[1]))
				}
			}
			return false
		})
	}
	wantAnswer(t, "no state", b.get("/campaigns?state=asleep"), http.StatusBadRequest, "problem")
}

// The picture of a campaign is read once for all who look, and then by what has changed.
func TestThePictureFollowsTheBoardByItsChanges(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s = s.With("TRIPRIZE_POSTGRES_URL=" + tapped.URL)
	id := s.Campaign(45) // its 1,035 positions are a long answer
	b := signIn(s)
	read := func(since int64, header ...string) (seen boardSeen, a fleet.Answer) {
		a = b.get(fmt.Sprintf("/campaigns/%s/board?since=%d", id, since), append(header, "HX-Request", "true")...)
		if a.Status == http.StatusOK {
			servers.NoError(t, json.Unmarshal(a.Body, &seen))
		}
		return seen, a
	}
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", At: []shape.Position{fixture.At(4, 1)}})
	first, a := read(0)
	mustAnswer(t, "the whole board", a, http.StatusOK, valued{"Content-Type", "application/json"}, `"user_id":"a"`)
	wantEqual(t, "its positions", len(first.Positions), 1035)

	s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(4, 2)}})
	var changes boardSeen
	servers.Eventually(t, "the change is told", func() bool {
		changes, a = read(first.Version)
		return len(changes.Positions) > 0
	})
	if changes.Since == nil || *changes.Since != first.Version || len(changes.Positions) != 1 || changes.Positions[0].Position != fixture.At(4, 2) || changes.Positions[0].UserID != "b" {
		t.Errorf("what has changed since version %d: %s", first.Version, a.Body)
	}
	_, again := read(first.Version, "If-None-Match", a.Header.Get("ETag"))
	wantAnswer(t, "nothing new", again, http.StatusNotModified)
	_, a = read(changes.Version + 1000)
	wantAnswer(t, "a version to come", a, http.StatusConflict, "has not reached")

	const reading = "WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col"
	before, begun := tapped.Count(reading), time.Now()
	fleet.Together(60, func(i int) { read(first.Version + int64(i%2)*(changes.Version-first.Version)) })
	if n, most := tapped.Count(reading)-before, int(time.Since(begun).Seconds())+2; n > most {
		t.Errorf("60 who look cost %d reads of the board, more than %d", n, most)
	}
}
