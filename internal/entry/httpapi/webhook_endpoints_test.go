package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const endpointsPath = "/v1/webhook-endpoints"

// endpointView is what the tests read of an endpoint.
type endpointView struct {
	ID             uuid.UUID
	Client, URL    string
	Events         []string
	Description    *string
	State          string
	DisabledReason *string `json:"disabled_reason"`
	Secret         string
	Secrets        []struct {
		ID        uuid.UUID
		ExpiresAt *string `json:"expires_at"`
	}
}

// endpointOf decodes an endpoint and fails the test unless the status is as wanted.
func endpointOf(s *fleet.System, a fleet.Answer, status int) (v endpointView) {
	s.T.Helper()
	if a.Status != status {
		s.T.Fatalf("want status %d, got %v: %s", status, a, a.Body)
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		s.T.Fatal(err)
	}
	return v
}

// asked sends a POST with a key. Like a client it comes again with what was not begun
// because too many wait for locks: TestAFloodOfEndpointsIsBounded has the same api.
func asked(s *fleet.System, credential, path, key string, body any) fleet.Answer {
	s.T.Helper()
	for end := time.Now().Add(servers.Patience); ; {
		a := s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, body)
		if a.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return a
		}
	}
}

func endpointBody(events ...string) map[string]any {
	return map[string]any{"url": "https://shop.example/triprize", "events": events}
}

func TestASecretIsShownOnceAndStoredNowhereElse(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	made := asked(s, s.App, endpointsPath, "create", endpointBody("purchase.*"))
	e := endpointOf(s, made, http.StatusCreated)
	path := endpointsPath + "/" + e.ID.String()
	if made.Header.Get("Location") != path || e.State != "unverified" || len(e.Secrets) != 1 || e.Secrets[0].ExpiresAt != nil {
		t.Errorf("made: %s, Location %q", made.Body, made.Header.Get("Location"))
	}
	rotated := asked(s, s.App, path+"/rotate-secret", "rotate", map[string]any{"overlap_seconds": 60})
	second := endpointOf(s, rotated, http.StatusOK)
	secrets := []string{e.Secret, second.Secret}
	for _, secret := range secrets {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(raw) < 24 || !strings.HasPrefix(secret, "whsec_") {
			t.Errorf("the secret %q: %v", secret, err)
		}
	}
	if e.Secret == second.Secret || len(second.Secrets) != 2 || second.Secrets[0].ExpiresAt != nil || second.Secrets[1].ExpiresAt == nil {
		t.Errorf("rotated: %s", rotated.Body)
	}
	for what, a := range map[string]fleet.Answer{
		"created again": asked(s, s.App, endpointsPath, "create", endpointBody("purchase.*")), "rotated again": asked(s, s.App, path+"/rotate-secret", "rotate", map[string]any{"overlap_seconds": 60}),
		"read": s.Read(path), "listed": s.Read(endpointsPath), "read by an operator": s.Do(0, s.Operator, http.MethodGet, path, nil, nil),
	} {
		if a.Status/100 != 2 || fleet.Contains(a.Body, "whsec_") || !fleet.Contains(a.Body, e.ID.String()) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
		if strings.HasSuffix(what, "again") && a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s is not said to be a repetition", what)
		}
	}
	if now := endpointOf(s, s.Read(path), http.StatusOK); len(now.Secrets) != 2 {
		t.Errorf("a repeated rotation made another secret: %+v", now.Secrets)
	}
	for _, table := range []string{"jobs", "webhook_endpoints", "webhook_secrets"} {
		rows, err := s.DB.Query(t.Context(), `SELECT r::text FROM `+table+` r`)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			var row string
			if err := rows.Scan(&row); err != nil {
				t.Fatal(err)
			}
			n++
			for _, secret := range secrets {
				raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
				if strings.Contains(row, secret) || bytes.Contains([]byte(row), raw) || strings.Contains(row, strings.TrimPrefix(secret, "whsec_")) {
					t.Errorf("a secret stands in %s: %s", table, row)
				}
			}
		}
		if n == 0 || rows.Err() != nil {
			t.Errorf("%s has %d rows: %v", table, n, rows.Err())
		}
	}
}

func TestAnAppSeesAndChangesItsOwnEndpointsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mine := endpointOf(s, asked(s, s.App, endpointsPath, "a", endpointBody("purchase.*")), http.StatusCreated)
	path := endpointsPath + "/" + mine.ID.String()
	stranger := s.NewKey("another")
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, path}, {http.MethodPatch, path}, {http.MethodDelete, path}, {http.MethodPost, path + "/enable"}, {http.MethodPost, path + "/disable"},
		{http.MethodPost, path + "/rotate-secret"}, {http.MethodPost, path + "/test"}, {http.MethodGet, path + "/deliveries"},
		{http.MethodGet, path + "/deliveries/" + uuid.NewString()}, {http.MethodPost, path + "/replay"}, {http.MethodPost, path + "/deliveries/" + uuid.NewString() + "/replay"},
	} {
		var body any
		switch {
		case c.method == http.MethodPatch:
			body = map[string]any{"events": []string{"*"}}
		case strings.HasSuffix(c.path, path+"/replay"):
			body = map[string]any{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
		}
		if a := s.Do(0, stranger, c.method, c.path, map[string]string{"Idempotency-Key": uuid.NewString()}, body); a.Status != http.StatusNotFound {
			t.Errorf("%s %s of another client: %v %s", c.method, c.path, a, a.Body)
		}
	}
	if a := s.Do(0, stranger, http.MethodGet, endpointsPath, nil, nil); fleet.Contains(a.Body, mine.ID.String()) {
		t.Errorf("another client's list: %s", a.Body)
	}
	theirs := endpointBody("*")
	theirs["client"] = mine.Client
	if a := asked(s, stranger, endpointsPath, "b", theirs); a.Status != http.StatusForbidden {
		t.Errorf("an app made an endpoint for another client: %v", a)
	}
	theirs["client"] = s.Client("another")
	ours := endpointOf(s, asked(s, s.Operator, endpointsPath, "b", theirs), http.StatusCreated)
	if ours.Client != s.Client("another") {
		t.Errorf("an operator made an endpoint for %q", ours.Client)
	}
	if a := s.Do(0, stranger, http.MethodGet, endpointsPath+"/"+ours.ID.String(), nil, nil); a.Status != http.StatusOK {
		t.Errorf("its client does not see it: %v", a)
	}
	for _, id := range []uuid.UUID{mine.ID, ours.ID} { // the oldest are the first
		if a := s.Do(0, s.Operator, http.MethodGet, endpointsPath+"?limit=1&cursor="+beside(id, -1).String(), nil, nil); !fleet.Contains(a.Body, id.String()) {
			t.Errorf("an operator's list: %s", a.Body)
		}
	}
	first := s.Do(0, s.Operator, http.MethodGet, endpointsPath+"?limit=1", nil, nil)
	var page struct {
		Endpoints []endpointView `json:"webhook_endpoints"`
		Next      *string        `json:"next_cursor"`
	}
	if err := json.Unmarshal(first.Body, &page); err != nil || len(page.Endpoints) != 1 || page.Next == nil {
		t.Fatalf("the first page: %s", first.Body)
	}
	if second := s.Do(0, s.Operator, http.MethodGet, endpointsPath+"?limit=1&cursor="+*page.Next, nil, nil); fleet.Contains(second.Body, page.Endpoints[0].ID.String()) {
		t.Errorf("the second page: %s", second.Body)
	}
}

func TestAnEndpointIsChangedDisabledEnabledAndDeleted(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := endpointBody("purchase.*", "campaign.drawn")
	body["description"] = "the shop"
	e := endpointOf(s, asked(s, s.App, endpointsPath, "a", body), http.StatusCreated)
	if len(e.Events) != 2 || e.Description == nil || *e.Description != "the shop" || e.URL != body["url"] {
		t.Errorf("made: %+v", e)
	}
	path := endpointsPath + "/" + e.ID.String()
	patch := func(change map[string]any) endpointView {
		t.Helper()
		return endpointOf(s, s.Do(0, s.App, http.MethodPatch, path, nil, change), http.StatusOK)
	}
	if e = patch(map[string]any{"url": "https://shop.example/other"}); e.URL != "https://shop.example/other" || len(e.Events) != 2 || e.Description == nil {
		t.Errorf("another URL: %+v", e)
	}
	if e = patch(map[string]any{"events": []string{"*"}, "description": nil}); len(e.Events) != 1 || e.Description != nil {
		t.Errorf("other events, no description: %+v", e)
	}
	if e = endpointOf(s, asked(s, s.App, path+"/disable", "d", nil), http.StatusOK); e.State != "disabled" || e.DisabledReason == nil || *e.DisabledReason != "asked" {
		t.Errorf("disabled: %+v", e)
	}
	for _, what := range []string{"/test", "/deliveries/" + uuid.NewString() + "/replay"} {
		if a := asked(s, s.App, path+what, what, nil); a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
			t.Errorf("%s of a disabled one: %v", what, a)
		}
	}
	if e = endpointOf(s, asked(s, s.App, path+"/enable", "e", nil), http.StatusOK); e.State != "unverified" || e.DisabledReason != nil {
		t.Errorf("enabled: %+v", e)
	}
	if a := s.Do(0, s.App, http.MethodDelete, path, nil, nil); a.Status != http.StatusNoContent {
		t.Errorf("deleted: %v", a)
	}
	if a := s.Read(path); a.Status != http.StatusNotFound {
		t.Errorf("after that: %v", a)
	}
}

func TestBadEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for name, c := range map[string]struct {
		change  map[string]any
		pointer string
	}{
		"no URL":                  {map[string]any{"url": nil}, "/url"},
		"http":                    {map[string]any{"url": "http://shop.example/"}, "/url"},
		"loopback":                {map[string]any{"url": "https://127.0.0.1/"}, "/url"},
		"loopback in IPv6":        {map[string]any{"url": "https://[::1]/"}, "/url"},
		"mapped":                  {map[string]any{"url": "https://[::ffff:10.0.0.1]/"}, "/url"},
		"the cloud's metadata":    {map[string]any{"url": "https://169.254.169.254/latest/meta-data"}, "/url"},
		"private":                 {map[string]any{"url": "https://10.1.2.3/"}, "/url"},
		"a name of this machine":  {map[string]any{"url": "https://localhost/"}, "/url"},
		"decimal":                 {map[string]any{"url": "https://2130706433/"}, "/url"},
		"octal":                   {map[string]any{"url": "https://0177.0.0.1/"}, "/url"},
		"hex":                     {map[string]any{"url": "https://0x7f000001/"}, "/url"},
		"short":                   {map[string]any{"url": "https://127.1/"}, "/url"},
		"a user":                  {map[string]any{"url": "https://jane:secret@shop.example/"}, "/url"},
		"a port of mail":          {map[string]any{"url": "https://shop.example:25/"}, "/url"},
		"a fragment":              {map[string]any{"url": "https://shop.example/#a"}, "/url"},
		"no events":               {map[string]any{"events": []string{}}, "/events"},
		"unknown events":          {map[string]any{"events": []string{"purchase.sold"}}, "/events/0"},
		"half a pattern":          {map[string]any{"events": []string{"purchase.comp*"}}, "/events/0"},
		"a test cannot be wanted": {map[string]any{"events": []string{"webhook-endpoint.test"}}, "/events/0"},
		"events twice":            {map[string]any{"events": []string{"*", "*"}}, "/events"},
		"a long description":      {map[string]any{"description": strings.Repeat("d", 501)}, "/description"},
		"a control character":     {map[string]any{"description": "a\nb"}, "/description"},
		"metadata":                {map[string]any{"metadata": map[string]any{}}, "/metadata"},
	} {
		body := endpointBody("purchase.*")
		for field, value := range c.change {
			body[field] = value
		}
		if a := asked(s, s.App, endpointsPath, uuid.NewString(), body); a.Status != http.StatusBadRequest || !fleet.Contains(a.Body, `"pointer":"`+c.pointer) {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	e := endpointOf(s, asked(s, s.App, endpointsPath, "good", endpointBody("purchase.*")), http.StatusCreated)
	path := endpointsPath + "/" + e.ID.String()
	if a := s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{"url": "https://[::1]/"}); a.Status != http.StatusBadRequest {
		t.Errorf("changed to loopback: %v", a)
	}
	if a := asked(s, s.App, path+"/replay", "backwards", map[string]any{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}); a.Status != http.StatusBadRequest {
		t.Errorf("a span that ends before it begins: %v", a)
	}
	if a := asked(s, s.App, path+"/rotate-secret", "long", map[string]any{"overlap_seconds": 604801}); a.Status != http.StatusBadRequest {
		t.Errorf("an overlap of more than a week: %v", a)
	}
}

func TestAFloodOfEndpointsIsBounded(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	const tries = 40
	answers := make(chan fleet.Answer, tries)
	for range tries {
		go func() {
			answers <- asked(s, s.App, endpointsPath, uuid.NewString(), endpointBody("*"))
		}()
	}
	made := 0
	for range tries {
		switch a := <-answers; {
		case a.Status == http.StatusCreated:
			made++
		case a.Status != http.StatusConflict || a.Refusal() != "state-conflict":
			t.Errorf("refused with %v: %s", a, a.Body)
		}
	}
	var rows int
	if err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM webhook_endpoints WHERE client = $1`, s.Client("shop")).Scan(&rows); err != nil || made != 16 || rows != 16 {
		t.Errorf("%d were made, %d are there, %v", made, rows, err)
	}
	if a := asked(s, s.NewKey("another"), endpointsPath, "a", endpointBody("*")); a.Status != http.StatusCreated {
		t.Errorf("another client: %v", a)
	}
}
