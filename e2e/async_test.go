package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

const shopping = `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"external"}}`

// shop sends a purchase as the app, with headers in pairs.
func (s *system) shop(path, key, body string, header ...string) answer {
	fields := map[string]string{"Idempotency-Key": key}
	for pair := range slices.Chunk(header, 2) {
		fields[pair[0]] = pair[1]
	}
	return s.do(0, s.app, http.MethodPost, path, fields, rawJSON(body))
}

func TestAWaitIsGrantedUpToItsLimitAndSaidSo(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, env: []string{"TRIPRIZE_API_MAX_WAIT=2s"}})
	path := "/v1/campaigns/" + s.campaign(12).String() + "/purchases"
	var requests sync.WaitGroup
	for prefer, applied := range map[string]string{
		"": "", "wait=0": "", "wait=-1": "", "wait=soon": "", "wait": "", "respond-async": "",
		"wait=1": "wait=1", "wait=100": "wait=2", "wait=99999999999": "wait=2", `respond-async, Wait = "1"`: "wait=1",
	} {
		requests.Go(func() {
			begun := time.Now()
			a := s.shop(path, prefer+"!", shopping, "Prefer", prefer)
			took := time.Since(begun)
			if a.status != http.StatusAccepted || a.State != job.Queued || a.header.Get("Location") != "/v1/jobs/"+a.ID.String() ||
				a.header.Get("Retry-After") == "" || a.header.Get("Preference-Applied") != applied || applied == "wait=1" && took < time.Second {
				t.Errorf("Prefer: %s: %v within %s, %v", prefer, a, took, a.header)
			}
			a = s.do(0, s.app, http.MethodGet, a.header.Get("Location"), map[string]string{"Prefer": prefer}, nil)
			status := http.StatusOK
			if applied != "" {
				status = http.StatusAccepted
			}
			if a.status != status || a.State != job.Queued || a.header.Get("Retry-After") == "" || a.header.Get("Preference-Applied") != applied {
				t.Errorf("Prefer: %s on the job: %v, %v", prefer, a, a.header)
			}
		})
	}
	requests.Wait()
	last := s.shop(path, "last", shopping)
	s.startWorker()
	var a answer
	eventually(t, 30*time.Second, "it is final", func() bool {
		a = s.do(0, s.app, http.MethodGet, "/v1/jobs/"+last.ID.String(), map[string]string{"Prefer": "wait=2"}, nil)
		return a.status == http.StatusOK
	})
	if a.State != job.Succeeded || a.header.Get("Retry-After") != "" {
		t.Errorf("in the end: %v, %v", a, a.header)
	}
}

func TestWhileJobsWaitTooLongOnlyTheOldOnesAreAnswered(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1, env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=1s"}})
	id := s.campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	first := s.shop(path, "first", shopping)
	if first.status != http.StatusAccepted {
		t.Fatal(first)
	}
	var accepted []answer
	var refused answer
	var key string
	eventually(t, time.Minute, "new requests are refused", func() bool {
		key = uuid.NewString()
		if refused = s.shop(path, key, shopping); refused.status == http.StatusAccepted {
			accepted = append(accepted, refused)
		}
		return refused.status != http.StatusAccepted
	})
	if refused.status != http.StatusServiceUnavailable || refused.code() != "overloaded" || refused.header.Get("Retry-After") == "" {
		t.Errorf("refused with %v, %v", refused, refused.header)
	}
	checkProblem(t, refused)
	again := s.shop(path, "first", shopping)
	if again.status != http.StatusAccepted || again.ID != first.ID || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the key of a job that is there: %v", again)
	}
	if keys, err := s.rdb.Keys(t.Context(), s.settings.Redis.Namespace+":request:*").Result(); err != nil || len(keys) == 0 || s.rdb.Del(t.Context(), keys...).Err() != nil {
		t.Fatal(keys, err)
	}
	if again = s.shop(path, "first", shopping); again.status != http.StatusAccepted || again.ID != first.ID || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("when Redis has forgotten it: %v", again)
	}
	if draw := s.post("/v1/campaigns/"+id.String()+"/draw", nil); draw.status != http.StatusServiceUnavailable {
		t.Errorf("a draw: %v", draw)
	}
	if a := s.post("/v1/campaigns/"+id.String()+"/pause", nil); a.status != http.StatusOK { // it waits for nobody
		t.Errorf("a command: %v", a)
	}
	s.view(s.post("/v1/campaigns/"+id.String()+"/resume", nil), http.StatusOK)
	var jobs int
	if err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = 'purchase'`).Scan(&jobs); err != nil || jobs != len(accepted)+1 {
		t.Errorf("%d jobs of %d accepted requests, %v", jobs, len(accepted)+1, err)
	}
	s.startWorker()
	eventually(t, 30*time.Second, "the refused key goes through", func() bool {
		return s.shop(path, key, shopping).status == http.StatusAccepted
	})
}

// without returns a problem without what belongs to one request only.
func (a answer) without(field string) string {
	var document map[string]any
	_ = json.Unmarshal(a.body, &document)
	delete(document, field)
	text, _ := json.Marshal(document)
	return string(text)
}

func TestACommandThatWasAnsweredIsAnsweredTheSameAgain(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1})
	made := s.view(s.post("/v1/campaigns", campaignBody(3)), http.StatusCreated)
	path := "/v1/campaigns/" + made.ID.String()
	send := func(n int, path, key string, body any) answer {
		return s.do(n, s.operator, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, body)
	}
	same := func(what string, a, b answer) {
		t.Helper()
		if b.status != a.status || b.without("request_id") != a.without("request_id") || b.header.Get("Location") != a.header.Get("Location") ||
			b.header.Get("Content-Type") != a.header.Get("Content-Type") || a.header.Get("Idempotent-Replayed") != "" || b.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: first %v %s, then %v %s, %v", what, a, a.body, b, b.body, b.header)
		}
	}
	resume := send(0, path+"/resume", "resume", nil) // refused: it is not published
	publish := send(0, path+"/publish", "publish", nil)
	twice := send(0, path+"/publish", "publish again", nil)
	pause := send(0, path+"/pause", "pause", nil)
	create := send(0, "/v1/campaigns", "create", campaignBody(4))
	nowhere := send(0, "/v1/campaigns/"+made.ID.String()[:35]+"0/publish", "nowhere", nil)
	for _, api := range []int{1, 0} { // whatever has happened since, and wherever
		same("a refusal", resume, send(api, path+"/resume", "resume", nil))
		same("a publication", publish, send(api, path+"/publish", "publish", nil))
		same("a second publication", twice, send(api, path+"/publish", "publish again", nil))
		same("a pause", pause, send(api, path+"/pause", "pause", nil))
		same("a creation", create, send(api, "/v1/campaigns", "create", campaignBody(4)))
		same("what is not there", nowhere, send(api, "/v1/campaigns/"+made.ID.String()[:35]+"0/publish", "nowhere", nil))
		if c := s.view(s.do(api, s.app, http.MethodGet, path, nil, nil), http.StatusOK); !c.Paused || c.State != "active" {
			t.Errorf("a replay did something: %+v", c)
		}
	}
	if resume.status != http.StatusConflict || twice.status != http.StatusConflict || nowhere.status != http.StatusNotFound || create.header.Get("Location") == "" {
		t.Errorf("got %v, %v, %v, %v", resume, twice, nowhere, create.header)
	}
	// A request that was never understood has not used its key.
	if a := send(0, "/v1/campaigns", "better", map[string]any{"name": "x"}); a.status != http.StatusBadRequest {
		t.Error(a)
	}
	if a := send(0, "/v1/campaigns", "better", campaignBody(3)); a.status != http.StatusCreated || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the key of a bad request: %v", a)
	}
	if a := send(0, path+"/pause", "publish", nil); a.status != http.StatusUnprocessableEntity {
		t.Errorf("another command with the key: %v", a)
	}
}

func TestARequestIsTheSameHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.campaign(4)
	plain := "/v1/campaigns/" + id.String() + "/purchases"
	first := s.shop(plain, "k", shopping, "Prefer", "wait=20")
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
		"a query":           {path: plain + "?x=1"},
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
		a := s.shop(c.path, c.key, c.body)
		if a.status == http.StatusNotFound {
			checkProblem(t, a)
			continue
		}
		if a.status != http.StatusAccepted || a.ID != first.ID || !bytes.Equal(a.body, first.body) || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %v %s", what, a, a.body)
		}
	}
	if n := s.purchases(id); n != 1 {
		t.Errorf("%d purchases", n)
	}
}
