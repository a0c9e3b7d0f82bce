//go:build failpoint

package httpapi_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// splitHall opens a hall of 5 and of 9 positions; of the first row only single ones are free. For its campaign a
// second lasts until the returned function is called.
func splitHall(s *fleet.System) (path string, jobs func() int, goOn func()) {
	s.T.Helper()
	path, id := openShape(s, nil, row(1, 5, ""), row(2, 9, ""))
	mustAnswer(s.T, "", buySelection(s, path, uuid.NewString(), "mina", numbered(2, 4)), job.Succeeded)
	return path, func() int {
			return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM jobs WHERE campaign_id = $1`, id)
		},
		failpoint.Disable("httpapi.runs.second", id.String())
}

func sideBySide(layer, quantity int) map[string]any {
	selection := map[string]any{"quantity": quantity, "adjacent": true}
	if layer > 0 {
		selection["layer"] = layer
	}
	return selection
}

func holdSelection(s *fleet.System, path, key, user string, selection map[string]any) fleet.Answer {
	body := map[string]any{"user_id": user}
	for name, value := range selection {
		body[name] = value
	}
	return s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": key}, body)
}

func refusedAtOnce(a fleet.Answer) bool {
	return a.Status == http.StatusConflict && fleet.Contains(a.Body, `"code":"none-available"`)
}

// A search in vain reads every free position under the lock of the campaign: three connections that repeat it
// made all others wait.
func TestASearchThatFoundNoRunIsNotRepeatedWithinASecond(t *testing.T) {
	t.Parallel()
	for learned, ask := range map[string]func(s *fleet.System, path, key string) fleet.Answer{
		"from a purchase that is waited for": func(s *fleet.System, path, key string) fleet.Answer {
			return buySelection(s, path, key, "otto", sideBySide(1, 2))
		},
		"from a purchase that is not": func(s *fleet.System, path, key string) fleet.Answer {
			return s.Execute(path+"/purchases", fleet.Fields{"user_id": "otto", "selection": sideBySide(1, 2), "payment": external}, "Idempotency-Key", key)
		},
		"from a hold": func(s *fleet.System, path, key string) fleet.Answer {
			return holdSelection(s, path, key, "otto", sideBySide(1, 2))
		},
	} {
		t.Run(learned, func(t *testing.T) {
			t.Parallel()
			s := fleet.Shared(t, busy)
			path, jobs, goOn := splitHall(s)
			defer goOn()
			first := uuid.NewString()
			found := ask(s, path, first)
			if found.State != job.Failed && found.State != job.Queued && !refusedAtOnce(found) {
				t.Fatal("not the answer of a search: ", found)
			}
			servers.Eventually(t, "it is learned", func() bool { return refusedAtOnce(buySelection(s, path, uuid.NewString(), "otto", sideBySide(1, 2))) })
			before := jobs()
			for i := range 4 {
				user, pair := "user-"+strconv.Itoa(i), sideBySide(1, 2+i%2)
				wantAnswer(t, "a purchase", buySelection(s, path, uuid.NewString(), user, pair), 409, coded("none-available"))
				wantAnswer(t, "a hold", holdSelection(s, path, uuid.NewString(), user, pair), 409, coded("none-available"))
			}
			if n := jobs(); n != before {
				t.Errorf("%d jobs were made of searches that are known to be in vain", n-before)
			}
			if a := ask(s, path, first); (a.State == "") != (found.State == "") || jobs() != before { // its job, unless it was a hold
				t.Error("a key that is known does not get its answer: ", a)
			}
			for _, selection := range []map[string]any{sideBySide(1, 1), sideBySide(2, 2), sideBySide(0, 3), {"layer": 1, "quantity": 2}} {
				wantAnswer(t, "", buySelection(s, path, uuid.NewString(), "mina", selection), job.Succeeded)
			}
			goOn()
			servers.Eventually(t, "the second is over", func() bool {
				return buySelection(s, path, uuid.NewString(), "otto", sideBySide(1, 2)).Status == http.StatusOK
			})
		})
	}
}
