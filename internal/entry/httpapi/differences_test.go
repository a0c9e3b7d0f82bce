package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

type differenceView struct {
	ID          uuid.UUID
	Kind, State string
	Reference   string
	Here, There struct {
		Amount   *int64
		Currency *string
	}
	Explanation *struct{ By, Reason string }
}

type differencePage struct {
	Differences []differenceView `json:"payment_differences"`
	NextCursor  *uuid.UUID       `json:"next_cursor"`
}

func TestDifferencesAreListedAndExplainedByOperators(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	exec(s, `INSERT INTO payment_differences (id, kind, object_id, there_amount, there_currency, detail, closed_at)
		SELECT ('00000000-0000-7000-8000-00000000000' || n)::uuid, 'unknown-here', 'pi_' || n, 500, 'JPY', 'captured', CASE WHEN n = 3 THEN now() END FROM generate_series(1, 5) n`)
	read := func(query string) (references []string, pages int) {
		for cursor := ""; ; pages++ {
			a := s.Do(0, s.Operator, http.MethodGet, "/v1/payment-differences?limit=2"+query+cursor, nil, nil)
			if a.Status != http.StatusOK {
				t.Fatalf("%v %s", a, a.Body)
			}
			page := decoded[differencePage](s, a)
			for _, d := range page.Differences {
				references = append(references, d.Reference+" "+d.State)
			}
			if page.NextCursor == nil {
				return references, pages + 1
			}
			cursor = "&cursor=" + page.NextCursor.String()
		}
	}
	if all, pages := read(""); !slices.Equal(all, []string{"pi_1 open", "pi_2 open", "pi_3 closed", "pi_4 open", "pi_5 open"}) || pages != 3 {
		t.Errorf("all: %q in %d pages", all, pages)
	}
	if open, _ := read("&state=open"); !slices.Equal(open, []string{"pi_1 open", "pi_2 open", "pi_4 open", "pi_5 open"}) {
		t.Errorf("open: %q", open)
	}
	path := "/v1/payment-differences/00000000-0000-7000-8000-00000000000"
	send := func(credential, path, key, body string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, fleet.RawJSON(body))
	}
	reason := `{"reason":"sold before the restore"}`
	for name, c := range map[string]struct {
		credential, path, body string
		status                 int
	}{
		"an app explains":         {s.App, path + "1/explain", reason, 403},
		"none":                    {s.Operator, "/v1/payment-differences/" + uuid.NewString() + "/explain", reason, 404},
		"closed":                  {s.Operator, path + "3/explain", reason, 409},
		"without a reason":        {s.Operator, path + "1/explain", `{}`, 400},
		"with a blank reason":     {s.Operator, path + "1/explain", `{"reason":" "}`, 400},
		"with a very long reason": {s.Operator, path + "1/explain", `{"reason":"` + strings.Repeat("a", 501) + `"}`, 400},
		"with a control":          {s.Operator, path + "1/explain", `{"reason":"a\u0000"}`, 400},
	} {
		if a := send(c.credential, c.path, uuid.NewString(), c.body); a.Status != c.status {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	first, again := send(s.Operator, path+"2/explain", "k1", reason), send(s.Operator, path+"2/explain", "k1", reason)
	d := decoded[differenceView](s, first)
	if first.Status != http.StatusOK || d.State != "explained" || d.Explanation == nil || d.Explanation.Reason != "sold before the restore" || d.There.Amount == nil || d.Here.Amount != nil {
		t.Errorf("%v %s", first, first.Body)
	}
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("with the same key: %v %s", again, again.Body)
	}
	if a := send(s.Operator, path+"2/explain", "k2", reason); a.Refusal() != "state-conflict" {
		t.Errorf("twice: %v", a)
	}
	if explained, _ := read("&state=explained"); !slices.Equal(explained, []string{"pi_2 explained"}) {
		t.Errorf("explained: %q", explained)
	}
	for query, status := range map[string]int{"?state=lost": 400, "?limit=0": 400, "?cursor=x": 400} {
		if a := s.Do(0, s.Operator, http.MethodGet, "/v1/payment-differences"+query, nil, nil); a.Status != status {
			t.Errorf("%s: %v", query, a)
		}
	}
}
