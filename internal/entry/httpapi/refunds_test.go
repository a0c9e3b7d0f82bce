package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

type refundView struct {
	ID         uuid.UUID
	State      string
	WaitingFor *string `json:"waiting_for"`
	Resolution *struct{ By, Reason string }
}

type refundPage struct {
	Refunds    []refundView
	NextCursor *uuid.UUID `json:"next_cursor"`
}

func TestTheRefundsOfACampaignAreListedByStateAndPaged(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id, elsewhere := s.Campaign(4), s.Campaign(3)
	var all []uuid.UUID
	for _, state := range []string{"listed", "resolved", "listed", "listed"} {
		made := insertRefund(s, adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1)), "external", "listed")
		if state == "resolved" {
			exec(s, `UPDATE refunds SET state = 'resolved', resolved_by = 'app:shop', resolve_reason = 'r', finished_at = clock_timestamp() WHERE id = $1`, made)
		}
		all = append(all, made)
	}
	insertRefund(s, adopted(s, fixture.Buy(t, s.DB, elsewhere, "mina", 0, 1)), "external", "listed")
	read := func(credential, query string) (ids []uuid.UUID, pages int) {
		for cursor := ""; ; pages++ {
			a := s.Do(0, credential, http.MethodGet, "/v1/campaigns/"+id.String()+"/refunds?limit=2"+query+cursor, nil, nil)
			if a.Status != http.StatusOK {
				t.Fatalf("%v %s", a, a.Body)
			}
			page := decoded[refundPage](s, a)
			for _, r := range page.Refunds {
				ids = append(ids, r.ID)
			}
			if page.NextCursor == nil {
				return ids, pages + 1
			}
			cursor = "&cursor=" + page.NextCursor.String()
		}
	}
	if ids, pages := read(s.Operator, ""); !slices.Equal(ids, all) || pages != 3 {
		t.Errorf("%v on %d pages, want %v", ids, pages, all)
	}
	if ids, _ := read(s.App, "&state=listed"); !slices.Equal(ids, []uuid.UUID{all[0], all[2], all[3]}) {
		t.Errorf("listed are %v", ids)
	}
	if ids, _ := read(s.App, "&state=failed"); len(ids) != 0 {
		t.Errorf("failed are %v", ids)
	}
	for path, status := range map[string]int{"/v1/campaigns/" + uuid.NewString() + "/refunds": 404, "/v1/campaigns/" + id.String() + "/refunds?state=lost": 400} {
		if a := s.Do(0, s.App, http.MethodGet, path, nil, nil); a.Status != status {
			t.Errorf("%s: %v", path, a)
		}
	}
}

func TestARefundIsReadTriedAgainAndSettledByThoseWhoMay(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	id := s.Campaign(4)
	listed := insertRefund(s, adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1)), "external", "listed").String()
	card, _ := fixture.BuyByCard(t, s.DB, id, "mina", 0, 1)
	adopted(s, card)
	failed := insertRefund(s, card, "card", "failed").String()
	exec(s, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, card)
	t.Cleanup(func() { exec(s, `UPDATE purchases SET state = 'completed' WHERE id = $1`, card) }) // before the audit
	mina, otto := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", "")
	send := func(credential, path, key, body string) fleet.Answer {
		var content any
		if body != "" {
			content = fleet.RawJSON(body)
		}
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, content)
	}
	reason := `{"reason":"paid back in cash"}`
	for name, c := range map[string]struct {
		credential, path, body string
		status                 int
		code                   string
	}{
		"an app tries again":                {s.App, failed + "/retry", "", 403, "forbidden"},
		"one that is listed, again":         {s.Operator, listed + "/retry", "", 409, "state-conflict"},
		"none, again":                       {s.Operator, uuid.NewString() + "/retry", "", 404, "not-found"},
		"an app resolves a card":            {s.App, failed + "/resolve", reason, 403, "forbidden"},
		"an operator resolves for an app":   {s.Operator, listed + "/resolve", reason, 403, "forbidden"},
		"a user resolves":                   {mina, listed + "/resolve", reason, 403, "forbidden"},
		"none is resolved":                  {s.App, uuid.NewString() + "/resolve", reason, 404, "not-found"},
		"resolved without a reason":         {s.App, listed + "/resolve", "{}", 400, "invalid-request"},
		"resolved with an empty reason":     {s.App, listed + "/resolve", `{"reason":""}`, 400, "invalid-request"},
		"resolved with a blank reason":      {s.App, listed + "/resolve", `{"reason":"  "}`, 400, "invalid-request"},
		"resolved with a very long reason":  {s.App, listed + "/resolve", `{"reason":"` + strings.Repeat("a", 501) + `"}`, 400, "invalid-request"},
		"resolved with something unknown":   {s.App, listed + "/resolve", `{"reason":"a","amount":1}`, 400, "invalid-request"},
		"resolved with a control character": {s.App, listed + "/resolve", `{"reason":"a\u0000"}`, 400, "invalid-request"},
	} {
		if a := send(c.credential, "/v1/refunds/"+c.path, uuid.NewString(), c.body); a.Status != c.status || a.Refusal() != c.code {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	for who, c := range map[string]struct {
		credential string
		status     int
	}{"operator": {s.Operator, 200}, "app": {s.App, 200}, "mina": {mina, 200}, "otto": {otto, 404}, "viewer": {fleet.TokenFor(t, "v", "viewer"), 403}} {
		if a := s.Do(0, c.credential, http.MethodGet, "/v1/refunds/"+listed, nil, nil); a.Status != c.status {
			t.Errorf("%s reads it: %v", who, a)
		}
	}

	first := send(s.App, "/v1/refunds/"+listed+"/resolve", "k1", reason)
	again := send(s.App, "/v1/refunds/"+listed+"/resolve", "k1", reason)
	if r := decoded[refundView](s, first); first.Status != http.StatusOK || r.State != "resolved" || r.Resolution == nil || r.Resolution.By != "app:"+s.Client("shop") || r.Resolution.Reason != "paid back in cash" {
		t.Errorf("resolved: %v %s", first, first.Body)
	}
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("with the same key: %v %s", again, again.Body)
	}
	if a := send(s.App, "/v1/refunds/"+listed+"/resolve", "k2", reason); a.Refusal() != "state-conflict" {
		t.Errorf("resolved twice: %v", a)
	}
	if r := decoded[refundView](s, s.Do(0, mina, http.MethodGet, "/v1/refunds/"+listed, nil, nil)); r.Resolution == nil || r.Resolution.By != "app" {
		t.Errorf("a user sees %+v", r.Resolution)
	}
	if a := send(s.Operator, "/v1/refunds/"+failed+"/retry", "k3", ""); a.Status != http.StatusOK || decoded[refundView](s, a).State != "open" {
		t.Errorf("tried again: %v %s", a, a.Body)
	}
	if a := send(s.Operator, "/v1/refunds/"+failed+"/resolve", "k4", reason); a.Refusal() != "state-conflict" {
		t.Errorf("resolved while it is tried: %v", a)
	}
	exec(s, `UPDATE refunds SET state = 'failed' WHERE id = $1`, failed)
	if a := send(s.Operator, "/v1/refunds/"+failed+"/resolve", "k5", reason); a.Status != http.StatusOK || decoded[refundView](s, a).State != "resolved" {
		t.Errorf("resolved by an operator: %v %s", a, a.Body)
	}
}

func TestTheRefundsOfACampaignAreResolvedByThoseWhoMay(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	listed := insertRefund(s, adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1)), "external", "listed")
	card, _ := fixture.BuyByCard(t, s.DB, id, "mina", 0, 1)
	adopted(s, card)
	failed := insertRefund(s, card, "card", "failed")
	exec(s, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, card)
	t.Cleanup(func() { exec(s, `UPDATE purchases SET state = 'completed' WHERE id = $1`, card) }) // before the audit
	path := "/v1/campaigns/" + id.String() + "/refunds/resolve"
	send := func(credential, path, key, body string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, fleet.RawJSON(body))
	}
	reason := `{"reason":"by bank transfer"}`
	for name, c := range map[string]struct {
		credential, path, body string
		status                 int
	}{
		"a user":           {fleet.TokenFor(t, "mina", ""), path, reason, 403},
		"without a reason": {s.Operator, path, `{}`, 400},
		"a blank reason":   {s.Operator, path, `{"reason":" "}`, 400},
		"an unknown field": {s.Operator, path, `{"reason":"r","limit":1}`, 400},
		"no campaign":      {s.Operator, "/v1/campaigns/" + uuid.NewString() + "/refunds/resolve", reason, 404},
	} {
		if a := send(c.credential, c.path, uuid.NewString(), c.body); a.Status != c.status {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	first := send(s.Operator, path, "k1", reason)
	if want := `{"campaign_id":"` + id.String() + `","resolved":1,"more":false}`; first.Status != http.StatusOK || string(first.Body) != want {
		t.Errorf("an operator: %v %s, want %s", first, first.Body, want)
	}
	if again := send(s.Operator, path, "k1", reason); string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("with the same key: %v %s", again, again.Body)
	}
	state := func(refund uuid.UUID) refundView {
		return decoded[refundView](s, s.Do(0, s.App, http.MethodGet, "/v1/refunds/"+refund.String(), nil, nil))
	}
	if r := state(failed); r.State != "resolved" || r.Resolution == nil || r.Resolution.Reason != "by bank transfer" || state(listed).State != "listed" {
		t.Errorf("got %+v, and %+v", r, state(listed))
	}
	if a := send(s.App, path, "k2", reason); !strings.Contains(string(a.Body), `"resolved":1`) || state(listed).State != "resolved" {
		t.Errorf("an app: %v %s", a, a.Body)
	}
	jobs := s.Do(0, s.Operator, http.MethodGet, "/v1/jobs?kind=refunds-resolve&campaign_id="+id.String(), nil, nil)
	if !strings.Contains(string(jobs.Body), `"resolved":1`) {
		t.Errorf("its job: %v %s", jobs, jobs.Body)
	}
}

func TestACampaignIsCancelledAsAJobWithAReason(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	path := "/v1/campaigns/" + s.Campaign(3).String() + "/cancel"
	for _, body := range []string{``, `{}`, `{"reason":""}`, `{"reason":" "}`, `{"reason":null}`, `{"reason":"a","by":"me"}`, `{"reason":"` + strings.Repeat("a", 501) + `"}`} {
		var content any
		if body != "" {
			content = fleet.RawJSON(body)
		}
		if a := s.Do(0, s.Operator, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, content); a.Status < 400 || a.Status >= 500 {
			t.Errorf("%s: %v", body, a)
		}
	}
	a := s.Post(path, map[string]string{"reason": "the prizes were lost in a fire"})
	if a.Status != http.StatusAccepted || !strings.Contains(string(a.Body), `"kind":"campaign-cancellation"`) || a.Header.Get("Location") != "/v1/jobs/"+a.ID.String() {
		t.Fatalf("%v %s", a, a.Body)
	}
	var payload string
	if err := s.DB.QueryRow(t.Context(), `SELECT payload FROM jobs WHERE id = $1`, a.ID).Scan(&payload); err != nil || payload != `{"by":"operator:`+s.Client("ops")+`","reason":"the prizes were lost in a fire"}` {
		t.Errorf("the worker reads %s, %v", payload, err)
	}
	if a := s.Post("/v1/campaigns/"+uuid.NewString()+"/cancel", map[string]string{"reason": "r"}); a.Status != http.StatusNotFound {
		t.Errorf("no campaign: %v", a)
	}
	exec(s, `DELETE FROM outbox_messages WHERE $1 = ANY(jobs)`, a.ID)
	exec(s, `DELETE FROM jobs WHERE id = $1`, a.ID)
}

// cancelled cancels a campaign behind the back of the system. Its jobs are taken away before
// the audit.
func cancelled(s *fleet.System, id uuid.UUID) {
	s.T.Helper()
	exec(s, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:ops', cancel_reason = 'a fire' WHERE id = $1`, id)
	s.T.Cleanup(func() {
		exec(s, `DELETE FROM outbox_messages WHERE jobs && ARRAY(SELECT id FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation')`, id)
		exec(s, `DELETE FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation'`, id)
	})
}

func TestTheStreamOfACancelledCampaignStaysOpenUntilAllIsGivenBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3)
	j := s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "a fire"})
	s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "again"}) // it will fail, and tells nothing
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	if f := l.WantEvent(); !strings.Contains(f.Data, `"state":"active"`) || !strings.Contains(f.Data, `"refunds":null`) {
		t.Errorf("%+v", f)
	}
	cancelled(s, id)
	if f := l.WantEvent(); !strings.Contains(f.Data, `"state":"cancelled"`) || !strings.Contains(f.Data, `"refunds":{"total":0,"done":0,"waiting":0}`) {
		t.Errorf("%+v", f)
	}
	announced(s, j.ID, "queued", `{"refunds":{"total":3,"done":1,"waiting":0}}`)
	seen := l.WantEvent()
	if !strings.Contains(seen.Data, `"refunds":{"total":3,"done":1,"waiting":0}`) {
		t.Errorf("%+v", seen)
	}
	l.WantSilence(2)
	l.HangUp()
	back := s.Listen(0, s.App, fleet.CampaignEvents(id), seen.ID)
	back.WantSilence(2)
	boards := s.Listen(0, s.App, fleet.CampaignEvents(id)+"?positions=true", "")
	if f := boards.WantEvent(); !strings.Contains(f.Data, `"refunds":{"total":3,"done":1,"waiting":0}`) {
		t.Errorf("with the board: %+v", f)
	}
	result := `{"campaign_id":"` + id.String() + `","state":"cancelled","refunded":{"wallet":1,"card":1,"external":0},"waiting":1}`
	exec(s, `UPDATE jobs SET state = 'succeeded', finished_at = clock_timestamp(), result = $2, progress = '{"refunds":{"total":3,"done":3,"waiting":1}}' WHERE id = $1`, j.ID, result)
	for _, l := range []*fleet.Listener{back, boards} {
		last := l.WantEvent()
		if !strings.Contains(last.Data, `"refunds":{"total":3,"done":3,"waiting":1}`) {
			t.Errorf("%+v", last)
		}
		l.WantEnd()
		if l.Reason() != "over" {
			t.Errorf("it ends because of %s", l.Reason())
		}
		if a := s.Listen(0, s.App, fleet.CampaignEvents(id), last.ID); l == back && a.Status != http.StatusNoContent {
			t.Errorf("after the last event: %d", a.Status)
		}
	}
	if r := decoded[jobView](s, s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+j.ID.String(), nil, nil)).Refunds; r == nil || r.Done != 3 || r.Waiting != 1 {
		t.Errorf("the job says %+v", r)
	}
	exec(s, `DELETE FROM jobs WHERE id = $1`, j.ID) // as the sweep old-records does long after
	exec(s, `UPDATE jobs SET state = 'failed', problem = '{"code":"state-conflict"}', finished_at = clock_timestamp() WHERE kind = 'campaign-cancellation' AND campaign_id = $1`, id)
	gone := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	if f := gone.WantEvent(); !strings.Contains(f.Data, `"refunds":null`) {
		t.Errorf("long after: %+v", f)
	}
	gone.WantEnd()
}

func TestOnlyOperatorsSeeWhoCancelledACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3)
	cancelled(s, id)
	for _, path := range []string{"/v1/campaigns/" + id.String(), "/v1/campaigns?state=cancelled&limit=1&" + from(id)} {
		for who, credential := range map[string]string{"operator": s.Operator, "app": s.App} {
			a := s.Do(0, credential, http.MethodGet, path, nil, nil)
			if body := string(a.Body); !strings.Contains(body, `"cancel_reason":"a fire"`) || !strings.Contains(body, `"cancelled_at":"2`) ||
				strings.Contains(body, `"cancelled_by":"operator:ops"`) != (who == "operator") {
				t.Errorf("%s, %s: %s", path, who, body)
			}
		}
	}
}
