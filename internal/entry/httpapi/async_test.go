package httpapi_test

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const shopping = `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"external"}}`

// shop sends a purchase as the app, with headers in pairs.
func shop(s *fleet.System, path, key, body string, header ...string) fleet.Answer {
	fields := map[string]string{"Idempotency-Key": key}
	for pair := range slices.Chunk(header, 2) {
		fields[pair[0]] = pair[1]
	}
	return s.Do(0, s.App, http.MethodPost, path, fields, fleet.RawJSON(body))
}

func TestAWaitIsGrantedUpToItsLimitAndSaidSo(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Env: []string{"TRIPRIZE_API_MAX_WAIT=2s"}})
	path := "/v1/campaigns/" + s.Campaign(12).String() + "/purchases"
	var requests sync.WaitGroup
	for prefer, applied := range map[string]string{
		"": "", "wait=0": "", "wait=-1": "", "wait=soon": "", "wait": "", "respond-async": "",
		"wait=1": "wait=1", "wait=100": "wait=2", "wait=99999999999": "wait=2", `respond-async, Wait = "1"`: "wait=1",
	} {
		requests.Go(func() {
			begun := time.Now()
			a := shop(s, path, prefer+"!", shopping, "Prefer", prefer)
			took := time.Since(begun)
			if a.Status != http.StatusAccepted || a.State != job.Queued || a.Header.Get("Location") != "/v1/jobs/"+a.ID.String() ||
				a.Header.Get("Retry-After") == "" || a.Header.Get("Preference-Applied") != applied || applied == "wait=1" && took < time.Second {
				t.Errorf("Prefer: %s: %v within %s, %v", prefer, a, took, a.Header)
			}
			a = s.Do(0, s.App, http.MethodGet, a.Header.Get("Location"), map[string]string{"Prefer": prefer}, nil)
			status := http.StatusOK
			if applied != "" {
				status = http.StatusAccepted
			}
			if a.Status != status || a.State != job.Queued || a.Header.Get("Retry-After") == "" || a.Header.Get("Preference-Applied") != applied {
				t.Errorf("Prefer: %s on the job: %v, %v", prefer, a, a.Header)
			}
		})
	}
	requests.Wait()
	last := shop(s, path, "last", shopping)
	s.RunWorker()
	var a fleet.Answer
	servers.Eventually(t, "it is final", func() bool {
		a = s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+last.ID.String(), map[string]string{"Prefer": "wait=2"}, nil)
		return a.Status == http.StatusOK
	})
	if a.State != job.Succeeded || a.Header.Get("Retry-After") != "" {
		t.Errorf("in the end: %v, %v", a, a.Header)
	}
}

func TestWhileJobsWaitTooLongOnlyTheOldOnesAreAnswered(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=1s"}})
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	first := shop(s, path, "first", shopping)
	if first.Status != http.StatusAccepted {
		t.Fatal(first)
	}
	var accepted []fleet.Answer
	var refused fleet.Answer
	var key string
	servers.Eventually(t, "new requests are refused", func() bool {
		key = uuid.NewString()
		if refused = shop(s, path, key, shopping); refused.Status == http.StatusAccepted {
			accepted = append(accepted, refused)
		}
		return refused.Status != http.StatusAccepted
	})
	if refused.Status != http.StatusServiceUnavailable || refused.Refusal() != "overloaded" || refused.Header.Get("Retry-After") == "" {
		t.Errorf("refused with %v, %v", refused, refused.Header)
	}
	fleet.CheckProblem(t, refused)
	again := shop(s, path, "first", shopping)
	if again.Status != http.StatusAccepted || again.ID != first.ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the key of a job that is there: %v", again)
	}
	if draw := s.Post("/v1/campaigns/"+id.String()+"/draw", nil); draw.Status != http.StatusAccepted || draw.Header.Get("Retry-After") != "1" { // another kind, for which nobody waits
		t.Errorf("a draw: %v", draw)
	}
	if a := s.Post("/v1/campaigns/"+id.String()+"/pause", nil); a.Status != http.StatusOK { // it waits for nobody, and the jobs will not sell everything
		t.Errorf("a command: %v", a)
	}
	var jobs int
	if err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = 'purchase'`).Scan(&jobs); err != nil || jobs != len(accepted)+1 {
		t.Errorf("%d jobs of %d accepted requests, %v", jobs, len(accepted)+1, err)
	}
	s.RunWorker()
	servers.Eventually(t, "the refused key goes through", func() bool {
		return shop(s, path, key, shopping).Status == http.StatusAccepted
	})
}

// Purchases wait for purchases only, and cancellations for cancellations.
func TestABacklogOfCancellationsRefusesCancellationsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=1s"}})
	id := s.Campaign(4)
	bought := adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1))
	cancel := func() fleet.Answer {
		return s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+bought.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString()}, struct{}{})
	}
	var refused fleet.Answer
	servers.Eventually(t, "new cancellations are refused", func() bool {
		refused = cancel()
		return refused.Status != http.StatusAccepted
	})
	if refused.Status != http.StatusServiceUnavailable || refused.Refusal() != "overloaded" || refused.Header.Get("Retry-After") == "" {
		t.Errorf("refused with %v, %v", refused, refused.Header)
	}
	a := shop(s, "/v1/campaigns/"+id.String()+"/purchases", "k", shopping)
	if a.Status != http.StatusAccepted || a.Header.Get("Retry-After") != "1" {
		t.Errorf("a purchase: %v, %v", a, a.Header)
	}
	if again := cancel(); again.Status != http.StatusServiceUnavailable {
		t.Errorf("a cancellation after it: %v", again)
	}
}

func TestARequestIsTheSameHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	plain := "/v1/campaigns/" + id.String() + "/purchases"
	first := shop(s, plain, "k", shopping, "Prefer", fleet.UntilFinal)
	if first.State != job.Succeeded {
		t.Fatal(first)
	}
	upper := "/v1/campaigns/" + strings.ToUpper(id.String()) + "/purchases"
	for what, c := range map[string]struct{ path, key, body string }{
		"upper-case UUID":   {path: upper},
		"slash at the end":  {path: plain + "/"},
		"both":              {path: upper + "/"},
		"escaped UUID":      {path: strings.ReplaceAll(plain, "-", "%2D")},
		"escaped word":      {path: strings.Replace(plain, "purchases", "purch%61ses", 1)},
		"capital words":     {path: strings.Replace(plain, "/v1/campaigns", "/V1/Campaigns", 1)},
		"two slashes":       {path: strings.Replace(plain, "/v1/", "/v1//", 1)},
		"a dot segment":     {path: strings.Replace(plain, "/v1/", "/v1/./", 1)},
		"urn":               {path: strings.Replace(plain, id.String(), "urn:uuid:"+id.String(), 1)},
		"UUID in braces":    {path: strings.Replace(plain, id.String(), url.PathEscape("{"+id.String()+"}"), 1)},
		"no hyphens":        {path: strings.Replace(plain, id.String(), strings.ReplaceAll(id.String(), "-", ""), 1)},
		"quoted key":        {key: `"k"`},
		"order and blanks":  {body: "{ \"payment\" : {\"method\":\"external\"},\n\t\"selection\":{\"quantity\":1}, \"user_id\":\"a\"}"},
		"escapes, a number": {body: `{"user_id":"\u0061","selection":{"quantity":1.0},"payment":{"method":"ext\u0065rnal"}}`},
	} {
		if c.path == "" {
			c.path = plain
		}
		if c.key == "" {
			c.key = "k"
		}
		if c.body == "" {
			c.body = shopping
		}
		a := shop(s, c.path, c.key, c.body)
		if a.Status == http.StatusNotFound {
			fleet.CheckProblem(t, a)
			continue
		}
		if a.Status != http.StatusAccepted || a.ID != first.ID || !bytes.Equal(a.Body, first.Body) || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	if n := s.Purchases(id); n != 1 {
		t.Errorf("%d purchases", n)
	}
}
