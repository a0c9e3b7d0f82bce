package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"triprize/internal/domain/shape"
	"triprize/internal/key"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// serverLimits are the bounds of this server that no schema of the contract says;
// most stand in its descriptions, and the maker of requests does not read which fields
// exclude each other.
var serverLimits = regexp.MustCompile(`must be 3 to 1000, and a campaign has|positions at most in all|must say how many positions|leave out base_length|or number alone|the campaign has positions|was sent twice|positions per user|must have every layer|every layer 1 to|minor units|has room for|ISO 4217|must be after sale_starts_at|it needs sale_ends_at|keys and values together|` +
	`must be in the years|without a public beacon|must be at most 100"|must be at most 20"|must have exactly one of|in all"|there is no position|the campaign has layers|goes with quantity only|has columns 1 to|must be 1 to 600|with the method card|must state the reason|must state how|must state where|a refund is named twice|must be the code of a problem|requires state failed|must be after from|must be types of events|is not of this stream|must be those of the stream|is not the signature of round|is no other key of the same client|must be before the end of the span|must be a day|is for wallets only|does not go with from and to|if public_page is embed|is required: the client`)

// Every operation gets the same number of requests, and the same ones in every run.
func TestGeneratedRequestsGetAnswersThatTheContractPromises(t *testing.T) {
	t.Parallel()
	rounds := property.Cases(t)
	s := fleet.Start(t, fleet.Options{Env: append([]string{"TRIPRIZE_API_MAX_WAIT=1s", "TRIPRIZE_STREAMS_INTERVAL=50ms", "TRIPRIZE_STREAMS_HEARTBEAT=100ms", "TRIPRIZE_STREAMS_MAX_AGE=200ms", "TRIPRIZE_TOKENS_CLIENT=shop"}, fleet.Trusting.Env...)})
	m := newMaker(t, map[string]string{"operator": s.Operator, "operator again": s.Operator, "operator still": s.Operator, "app": s.App, "mina": fleet.TokenFor(t, "mina", ""), "public": fleet.TokenFor(t, "v", "public"), "viewer": s.NewKeyOf(key.Viewer, "bi"), "nobody": ""})
	m.start(s)
	s.NewKey("otto") // some clients have the names of users
	for _, o := range m.operations {
		if strings.HasSuffix(o.path, "/approve") || strings.HasSuffix(o.path, "/reject") {
			continue // no key gets so far
		}
		if !m.reaches(t, s.URLs[0], o) {
			t.Errorf("%s: no request as the operator got past the checks of requests", o.OperationID)
		}
	}
	m.oddities, m.who = true, slices.Sorted(maps.Keys(m.credentials))
	for seed := range rounds {
		for _, o := range m.operations {
			m.send(t, s.URLs[0], o, seed)
		}
	}
}

// start gives the maker one of everything to name in a path.
func (m *maker) start(s *fleet.System) {
	s.T.Helper()
	active := s.Campaign(20)
	hold := s.MustHold(fleet.HoldOrder{Campaign: active, User: "mina", At: []shape.Position{{Layer: 3, Column: 1}}})
	queued, bought := s.Buy(fleet.Order{Campaign: active, User: "mina"}), fleet.Answer{}
	servers.Eventually(s.T, "it is bought", func() bool { bought = s.AwaitJob(0, queued.ID); return bought.State.Final() }) // here a wait lasts a second
	wallet := s.Wallet("mina", 1_000_000)
	authorized := s.Execute(wallet+"/authorizations", fleet.Fields{"amount": 1000})
	if bought.Result.PurchaseID == uuid.Nil || authorized.Status != http.StatusCreated {
		s.T.Fatal(bought, authorized)
	}
	for name, id := range map[string]string{"campaign": active.String(), "hold": hold.ID.String(), "purchase": bought.Result.PurchaseID.String(), "job": bought.ID.String(),
		"approval": pendingApproval(s), "wallet": fleet.WalletID(wallet), "authorization": authorized.ID.String(),
		"refund": insertRefund(s, bought.Result.PurchaseID, "external", "listed").String()} {
		m.ids[name] = []string{id}
	}
	for range 2 {
		_, key, _ := strings.Cut(s.NewKey("spare"), "_")
		prefix, _, _ := strings.Cut(key, "_")
		m.ids["prefix"] = append(m.ids["prefix"], prefix)
	}
	for i := range 4 { // one is deleted
		e := endpointOf(s, asked(s, s.Operator, endpointsPath, fmt.Sprintf("endpoint %d", i), endpointBody("*")), http.StatusCreated)
		a := asked(s, s.Operator, endpointsPath+"/"+e.ID.String()+"/test", fmt.Sprintf("test %d", i), nil)
		mustAnswer(s.T, "a test", a, 200)
		event := decoded[struct {
			EventID string `json:"event_id"`
		}](s, a).EventID
		m.ids["endpoint"], m.ids["event"] = append(m.ids["endpoint"], e.ID.String()), append(m.ids["event"], event)
	}
}

// reaches sends plain requests of the operator until one is refused by nothing but
// the state of what it names.
func (m *maker) reaches(t *testing.T, base string, o made) bool {
	t.Helper()
	for seed := range 50 {
		switch m.send(t, base, o, seed).Status {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnsupportedMediaType:
		default:
			return true
		}
	}
	return false
}

// send makes a request from a seed, sends it, and checks and remembers the answer.
func (m *maker) send(t *testing.T, base string, o made, seed int) fleet.Answer {
	t.Helper()
	const bodyLimit, remembered = 1 << 20, 20
	type sent struct {
		*http.Request
		plain bool
	}
	request := rapid.Custom(func(rt *rapid.T) sent {
		request, plain := m.request(rt, base, o)
		return sent{request, plain}
	}).Example(seed)
	a := fleet.Send(request.Request)
	servers.Eventually(t, fmt.Sprintf("%s %s is no longer told to retry", request.Method, request.URL), func() bool {
		if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			return true
		}
		again := request.Clone(t.Context()) // as a busy server asks for
		again.Body, _ = request.GetBody()
		a = fleet.Send(again)
		return false
	})
	switch {
	case a.Err != nil && request.ContentLength > bodyLimit: // refused by its length, while it was still being sent
		return a
	case a.Err != nil || a.Status >= 500 || a.Status == 0:
		t.Errorf("seed %d: %s %s: %v %s", seed, o.method, request.URL, a, a.Body)
	case o.Responses.Status(a.Status) == nil:
		t.Errorf("seed %d: %s %s: the contract has no such answer: %v %s", seed, o.method, request.URL, a, a.Body)
	case request.plain && a.Status == http.StatusBadRequest && a.Refusal() == "invalid-request" && !serverLimits.Match(a.Body):
		t.Errorf("seed %d: %s %s fits the contract and is refused: %s", seed, o.method, request.URL, a.Body)
	}
	name, id := "purchase", a.Result.PurchaseID
	if id == uuid.Nil {
		name, id = located(a.Header.Get("Location")), a.ID
	}
	if id != uuid.Nil && name != "" && len(m.ids[name]) < remembered {
		m.ids[name] = append(m.ids[name], id.String())
	}
	return a
}

// located tells what a Location header leads to.
func located(location string) (name string) {
	if strings.Contains(location, "/authorizations/") {
		return "authorization"
	}
	if strings.HasPrefix(location, endpointsPath+"/") {
		return "endpoint"
	}
	for _, name := range []string{"campaign", "wallet", "hold", "job"} {
		if strings.HasPrefix(location, "/v1/"+name+"s/") {
			return name
		}
	}
	return ""
}

// maker makes requests that fit a contract, or nearly.
type maker struct {
	document    *openapi3.T
	operations  []made            // every one
	credentials map[string]string // by role
	who         []string          // of these roles are requests
	oddities    bool              // some parts of requests do not fit
	ids         map[string][]string
}

// exported are parameters of an export, and of a month.
var exported = map[string][]string{"month": {"2020-01", "2026-10"}, "kind": {"purchases", "wallets", "payouts"}, "from": {"2026-11-01"}, "to": {"2026-12-01"}, "zone": {"Asia/Tokyo", "Europe/Berlin"}, "as_of": {"2026-12-01"},
	"separator": {"comma", "semicolon"}}

type made struct {
	*openapi3.Operation
	method, path string
	parameters   openapi3.Parameters
}

// newMaker reads the contract.
func newMaker(t *testing.T, credentials map[string]string) *maker {
	t.Helper()
	m := &maker{credentials: credentials, ids: map[string][]string{"user": {"mina", "otto", "a/b c"}, "sweep": {"lost-jobs", "stale-locks"}}, who: []string{"operator"}}
	var err error
	if m.document, err = schemas(); err != nil {
		t.Fatal(err)
	}
	for _, path := range m.document.Paths.InMatchingOrder() {
		item := m.document.Paths.Value(path)
		for _, method := range slices.Sorted(maps.Keys(item.Operations())) {
			o := item.Operations()[method]
			m.operations = append(m.operations, made{o, method, path, append(slices.Clone(item.Parameters), o.Parameters...)})
		}
	}
	return m
}

// value makes a value that fits a schema. Large numbers and long lists are rare.
func (m *maker) value(t *rapid.T, s *openapi3.Schema) any {
	types := s.Type.Slice()
	switch kind := rapid.SampledFrom(types).Draw(t, "type"); {
	case len(s.Enum) > 0:
		return rapid.SampledFrom(s.Enum).Draw(t, "one of")
	case kind == "integer":
		least, most := int64(1), int64(1_000_000)
		if s.Min != nil {
			least = int64(*s.Min)
		}
		if s.Max != nil {
			most = int64(*s.Max)
		}
		return rapid.OneOf(rapid.Int64Range(least, min(most, least+5)), rapid.Int64Range(least, most), rapid.Just(most)).Draw(t, "integer")
	case kind == "boolean":
		return rapid.Bool().Draw(t, "boolean")
	case kind == "string":
		return m.text(t, s)
	case kind == "array":
		list := make([]any, rapid.IntRange(int(s.MinItems), 4).Draw(t, "elements"))
		for i := range list {
			list[i] = m.value(t, s.Items.Value)
		}
		if s.UniqueItems {
			distinct := []any{} // and not null
			for _, one := range list {
				if !slices.ContainsFunc(distinct, func(x any) bool { return reflect.DeepEqual(x, one) }) {
					distinct = append(distinct, one)
				}
			}
			list = distinct
		}
		return list
	case kind == "object":
		object := make(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) || rapid.IntRange(0, 2).Draw(t, name+"?") == 0 {
				object[name] = m.value(t, s.Properties[name].Value)
			}
		}
		if s.MinProps > 0 && len(object) == 0 {
			first := slices.Sorted(maps.Keys(s.Properties))[0]
			object[first] = m.value(t, s.Properties[first].Value)
		}
		return object
	default:
		return nil
	}
}

func (m *maker) text(t *rapid.T, s *openapi3.Schema) string {
	most := 300
	if s.MaxLength != nil {
		most = int(*s.MaxLength)
	}
	switch {
	case s.Format == "uuid":
		return rapid.SampledFrom(m.ids["campaign"]).Draw(t, "id")
	case s.Format == "date-time":
		return time.Unix(rapid.Int64Range(946684800, 253370764800).Draw(t, "time"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC().Format(time.RFC3339Nano)
	case s.Pattern == "^[A-Z]{3}$":
		return rapid.OneOf(rapid.SampledFrom([]string{"JPY", "EUR", "KWD"}), rapid.StringMatching("[A-Z]{3}")).Draw(t, "currency")
	case strings.HasPrefix(s.Pattern, "^https?") && !strings.HasSuffix(s.Pattern, "(:[1-6]?[0-9]{1,4})?$"): // no origin
		return "https://shop.example/" + rapid.StringMatching("[a-z0-9?=&]{0,30}").Draw(t, "page")
	case s.Pattern == "^[ -~]*$" || s.Pattern == "":
		return rapid.StringMatching(`[!-~]([ -~]{0,30}[!-~])?`).Draw(t, "key or header")
	case !strings.HasPrefix(s.Pattern, "^[^"):
		return rapid.StringMatching(s.Pattern).Filter(func(text string) bool { return len(text) <= most }).Draw(t, "by its pattern")
	}
	return rapid.OneOf(rapid.SampledFrom(m.ids["user"]), rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r >= ' ' && (r < 0x7f || r > 0x9f) }), int(max(s.MinLength, 1)), most, -1),
		rapid.Just(strings.Repeat("\U0001f642", most))).Draw(t, "text")
}

// spoiled changes something in a value, so that it may not fit any more.
func spoiled(t *rapid.T, value any) any {
	odd := []any{nil, "", "x", -1, 0, 1.5, 1e300, true, []any{}, map[string]any{}, "\x00", strings.Repeat("a", 2000), "2030-01-01t00:00:00z", map[string]any{"$ref": "#"}, hostile[0]}
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 && rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(t, "field")
			if v[name] = spoiled(t, v[name]); rapid.IntRange(0, 4).Draw(t, "left out") == 0 {
				delete(v, name)
			}
			return v
		}
		v[rapid.SampledFrom([]string{"", "a~/b", "role", "id", "user_id", strings.Repeat("n", 500)}).Draw(t, "new field")] = 1
		return v
	case []any:
		if len(v) > 0 && rapid.Bool().Draw(t, "deeper") {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
			v[i] = spoiled(t, v[i])
			return v
		}
		return slices.Repeat(append(v, nil), 400)
	}
	return rapid.SampledFrom(odd).Draw(t, "odd")
}

// sensible makes of a campaign that fits the schema one that fits the server too.
func sensible(t *rapid.T, body map[string]any) {
	n := rapid.IntRange(3, 4).Draw(t, "layers")
	layers := make([]any, n)
	for i := range layers {
		layers[i] = map[string]any{"layer": i + 1, "price": 100, "prizes": []any{map[string]any{"name": "a prize", "count": 1}}}
	}
	body["base_length"], body["layers"], body["currency"] = n, layers, "JPY"
	for _, name := range []string{"sale_starts_at", "sale_ends_at", "policies"} {
		delete(body, name)
	}
}

// request makes a request. It is plain when every part of it fits the contract.
func (m *maker) request(t *rapid.T, base string, o made) (request *http.Request, plain bool) {
	plain = true
	odd := func(what string, often int) bool { // one in often
		is := m.oddities && rapid.IntRange(1, often).Draw(t, what) == often
		plain = plain && !is
		return is
	}
	path, query, header := o.path, url.Values{}, http.Header{}
	for _, ref := range o.parameters {
		p := ref.Value
		if !p.Required && rapid.Bool().Draw(t, p.Name+" left out") {
			continue
		}
		text := ""
		switch known := m.ids[p.Name]; {
		case odd("an odd "+p.Name, 12):
			text = rapid.SampledFrom(append([]string{"", "0", "-1", "007", "\xff", "a\tb", strings.Repeat("a", 1500), uuid.NewString(), "{" + uuid.NewString() + "}"}, hostile...)).Draw(t, p.Name)
		case p.Name == "Idempotency-Key":
			text = rapid.OneOf(rapid.SampledFrom([]string{"a", `"a"`, "b"}), rapid.StringMatching(`[0-9a-f]{32}`)).Draw(t, p.Name)
		case p.Name == "Prefer":
			text = rapid.SampledFrom([]string{"wait=1", "respond-async, wait=1", "wait=x", "a;b=c"}).Draw(t, p.Name)
		case strings.HasPrefix(o.path, "/v1/exports/") || strings.HasPrefix(o.path, "/v1/books/"):
			text = rapid.SampledFrom(exported[p.Name]).Draw(t, p.Name)
		case len(known) > 0:
			text = rapid.SampledFrom(known).Draw(t, p.Name)
		default:
			data, _ := json.Marshal(m.value(t, p.Schema.Value))
			if json.Unmarshal(data, &text) != nil {
				text = string(data)
			}
		}
		switch p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(text))
		case "query":
			query.Set(p.Name, text)
		default:
			header.Set(p.Name, strings.Map(func(r rune) rune { // what a header can carry
				if r < ' ' || r == 0x7f {
					return -1
				}
				return r
			}, text))
		}
	}
	var body []byte
	if o.RequestBody != nil {
		value := m.value(t, o.RequestBody.Value.Content["application/json"].Schema.Value)
		if draft, ok := value.(map[string]any); ok && o.OperationID == "createCampaign" && rapid.Bool().Draw(t, "sensible") {
			sensible(t, draft)
		}
		if odd("a spoiled body", 3) {
			value = spoiled(t, value)
		}
		body, _ = json.Marshal(value)
		header.Set("Content-Type", "application/json")
		if odd("a cut body", 20) {
			body = body[:rapid.IntRange(0, len(body)-1).Draw(t, "bytes")]
		}
	}
	if encoded := query.Encode(); encoded != "" {
		path += "?" + encoded
	}
	request, err := http.NewRequest(o.method, base+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	if key := m.credentials[rapid.SampledFrom(m.who).Draw(t, "who")]; key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	return request, plain
}
