//go:build failpoint

package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// drafted is a campaign as far as these tests read it.
type drafted struct {
	ID       uuid.UUID
	Policies struct{ Beacon bool }
	Rules    json.RawMessage
}

// draft sends a campaign with policies, or a change of one, and returns the answer.
func draft(t *testing.T, s *fleet.System, path string, policies any) (a fleet.Answer, d drafted) {
	t.Helper()
	method, body := http.MethodPost, fleet.CampaignBody(3)
	if path != "/v1/campaigns" {
		method, body = http.MethodPatch, map[string]any{"name": "Another name"}
	}
	if policies != nil {
		body["policies"] = policies
	}
	a = s.Do(0, s.Operator, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
	_ = json.Unmarshal(a.Body, &d)
	return a, d
}

func TestACampaignThatDoesNotSayHasTheBeaconThatTheInstallationSays(t *testing.T) {
	t.Parallel()
	for _, standard := range []bool{true, false} {
		t.Run(fmt.Sprint(standard), func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Beacon: 1, Workers: -1, Schedulers: -1, Env: []string{fmt.Sprintf("TRIPRIZE_BEACON_DEFAULT=%v", standard)}})
			for _, c := range []struct {
				policies any
				want     bool
			}{
				{nil, standard},
				{map[string]any{"unsold": "stay"}, standard},
				{map[string]any{"beacon": true}, true},
				{map[string]any{"beacon": false}, false},
			} {
				a, d := draft(t, s, "/v1/campaigns", c.policies)
				if a.Status != http.StatusCreated || d.Policies.Beacon != c.want {
					t.Fatalf("%v: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				path := "/v1/campaigns/" + d.ID.String()
				if a, d := draft(t, s, path, nil); a.Status != http.StatusOK || d.Policies.Beacon != c.want {
					t.Errorf("%v, and a name: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				if a, d := draft(t, s, path, map[string]any{"beacon": !c.want}); a.Status != http.StatusOK || d.Policies.Beacon == c.want {
					t.Errorf("%v, and the opposite: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				if a, d := draft(t, s, path, map[string]any{"unsold": "stay"}); a.Status != http.StatusOK || d.Policies.Beacon != standard {
					t.Errorf("policies that do not say: %v, beacon %v", a, d.Policies.Beacon)
				}
			}
		})
	}
}

// publish publishes a campaign and returns its rules.
func publish(t *testing.T, s *fleet.System, id uuid.UUID) fairdraw.Rules {
	t.Helper()
	a := s.Post("/v1/campaigns/"+id.String()+"/publish", nil)
	mustAnswer(t, "publish", a, 200)
	return decoded[struct{ Rules fairdraw.Rules }](s, a).Rules
}

// Relays are silent, and somebody without a key has the round: it draws.
func TestAnybodyBringsTheRoundOfADrawWhoseRelaysAreSilent(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 1, Schedulers: -1})
	relay := s.Beacon.Relays()[0]
	if err := relay.SetFaults(drandsim.Faults{LateRounds: 5}); err != nil { // it confirms the clock, and has the round late
		t.Fatal(err)
	}
	_, d := draft(t, s, "/v1/campaigns", map[string]any{"beacon": true})
	publish(t, s, d.ID)
	path := "/v1/campaigns/" + d.ID.String() + "/draw"
	bring := func(signature string) fleet.Answer {
		return s.Do(0, "", http.MethodPost, path+"/round", nil, map[string]any{"signature": signature})
	}
	wantAnswer(t, "before the freeze", bring(strings.Repeat("0f", 48)), 409, coded("state-conflict"))
	s.Buy(fleet.Order{Campaign: d.ID, User: "mina", Quantity: 6, Wait: true})
	type draw struct {
		State   string
		Round   *uint64
		VoidsAt *string `json:"voids_at"`
		Winners []json.RawMessage
	}
	var now draw
	read := func() { now = fleet.As[draw](t, s.Do(0, "", http.MethodGet, path, nil, nil)) }
	servers.Eventually(t, "it is frozen", func() bool { read(); return now.Round != nil })
	round := s.Beacon.Chain().Sign(*now.Round)
	right := hex.EncodeToString(round.Signature)
	for range 2 {
		mustAnswer(t, "", bring(right), 200, hex.EncodeToString(round.Randomness[:]))
	}
	servers.NoError(t, relay.SetFaults(drandsim.Faults{Away: drandsim.AwayRefuse}))
	wrong := hex.EncodeToString(s.Beacon.Chain().Sign(*now.Round + 1).Signature)
	wantAnswer(t, "of another round", bring(wrong), 400, "/signature")
	servers.Eventually(t, "it is drawn", func() bool { read(); return now.State == "completed" && len(now.Winners) > 0 && now.VoidsAt == nil })
	void := map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}
	wantAnswer(t, "the void of a draw", s.Do(0, s.Operator, http.MethodPost, path+"/void", void, fleet.Fields{"reason": "we do not like it"}), coded("state-conflict"))
}

// drawNow is an event of a draw's stream.
type drawNow struct {
	State      string
	Commitment fairdraw.Hash
	Freeze     *struct {
		Hash   fairdraw.Hash
		Record json.RawMessage
	}
	Round      *uint64
	RoundDueAt *string `json:"round_due_at"`
	Secret     *fairdraw.Hash
	Winners    []struct {
		UserID string `json:"user_id"`
	}
	Chain *struct {
		ChainHash   fairdraw.Hash  `json:"chain_hash"`
		PublicKey   fairdraw.Bytes `json:"public_key"`
		GenesisTime int64          `json:"genesis_time"`
		GenesisSeed fairdraw.Bytes `json:"genesis_seed"`
		BeaconID    string         `json:"beacon_id"`
		PeriodS     int            `json:"period_s"`
	}
}

func drawIn(t *testing.T, f fleet.Frame) (now drawNow) {
	t.Helper()
	if err := json.Unmarshal([]byte(f.Data), &now); err != nil || f.Name != "draw" {
		t.Fatal(f, err)
	}
	return now
}

func drawEvents(id uuid.UUID) string { return "/v1/campaigns/" + id.String() + "/draw/events" }

// Anybody notes commitment and freeze hash in time, reads the list, and computes the outcome
// when the round is there.
func TestAnybodyFollowsADrawAndNotesItsFreezeBeforeTheRound(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 1, Env: []string{fleet.Lively}})
	_, d := draft(t, s, "/v1/campaigns", map[string]any{"beacon": true})
	if l := s.Listen(0, "", drawEvents(d.ID), ""); l.Status != http.StatusNotFound {
		t.Errorf("a draft: %v", l.Answer)
	}
	publish(t, s, d.ID)
	isNoted, goOn := context.WithCancel(t.Context())
	defer goOn()
	defer failpoint.Set("draw.fetch", d.ID.String(), func() { <-isNoted.Done() })() // so that the freeze is seen, however late
	l := s.Listen(0, "", drawEvents(d.ID), "")
	first := l.WantEvent()
	before := drawIn(t, first)
	if c := before.Chain; before.State != "active" || before.Freeze != nil || c == nil || c.ChainHash != fairdraw.Hash(s.Beacon.Chain().Hash()) ||
		c.ChainHash != fairdraw.Hash((beacon.Chain{PublicKey: c.PublicKey, GenesisTime: c.GenesisTime, GenesisSeed: c.GenesisSeed, ID: c.BeaconID, PeriodS: c.PeriodS}).Hash()) {
		t.Errorf("before the freeze: %s", first.Data)
	}
	mustAnswer(t, "", s.Buy(fleet.Order{Campaign: d.ID, User: "mina", Quantity: 2, Wait: true}), coded(""))
	l.WantSilence(5) // a sale changes nothing of the draw
	s.Buy(fleet.Order{Campaign: d.ID, User: "otto", Quantity: 4, Wait: true})
	var noted drawNow
	var lines []fairdraw.SoldLine
	events := []fleet.Frame{first}
	for f, more := l.Event(); more; f, more = l.Event() {
		now := drawIn(t, f)
		if f.ID == events[len(events)-1].ID || now.Commitment != before.Commitment || len(now.Winners) > 0 && now.Winners[0].UserID != "" {
			t.Errorf("after %+v: %+v", events[len(events)-1], f)
		}
		events = append(events, f)
		if noted.Freeze == nil && now.Freeze != nil {
			noted, lines = now, listOf(s, d.ID)
			goOn()
		}
	}
	last := drawIn(t, events[len(events)-1])
	if noted.Freeze == nil || noted.State != "drawing" || noted.Round == nil || noted.RoundDueAt == nil || noted.Secret == nil ||
		noted.Freeze.Hash != fairdraw.FreezeHash(noted.Freeze.Record) || last.State != "completed" || len(last.Winners) == 0 || l.Reason() != "over" {
		t.Errorf("%d events; noted %+v, at the end %+v, %s", len(events), noted, last, l.Reason())
	}
	_, document, err := plain(t, http.MethodGet, s.URLs[0]+"/v1/campaigns/"+d.ID.String()+"/draw/proof", nil)
	servers.NoError(t, err)
	i := 0
	p, err := fairdraw.ReadProof(bytes.NewReader(document), func(line fairdraw.SoldLine) error {
		if i >= len(lines) || lines[i] != line {
			t.Errorf("line %d of the proof is another", i)
		}
		i++
		return nil
	})
	if err != nil || i != 6 || p.FreezeHash != noted.Freeze.Hash || p.Commitment != noted.Commitment {
		t.Errorf("the proof has the freeze hash %s, noted was %s: %v", p.FreezeHash, noted.Freeze.Hash, err)
	}
	if over := s.Listen(0, "", drawEvents(d.ID), events[len(events)-1].ID); over.Status != http.StatusNoContent {
		t.Errorf("to who has seen the end: %v", over.Answer)
	}
	late := s.Listen(0, s.App, drawEvents(d.ID), first.ID)
	wantEqual(t, "to who was away", late.WantEvent(), events[len(events)-1])
	late.WantEnd()
}

// listOf reads the frozen list of a campaign without a key.
func listOf(s *fleet.System, id uuid.UUID) (lines []fairdraw.SoldLine) {
	s.T.Helper()
	head, text, err := plain(s.T, http.MethodGet, s.URLs[0]+"/v1/campaigns/"+id.String()+"/draw/list", nil)
	if err != nil || head.StatusCode != http.StatusOK {
		s.T.Fatal(head, string(text), err)
	}
	l, err := fairdraw.ReadList(bytes.NewReader(text), func(line fairdraw.SoldLine) error { lines = append(lines, line); return nil })
	servers.NoError(s.T, err)
	if root, err := fairdraw.RootOf(lines); err != nil || root != l.Root || len(lines) != l.Count || l.CampaignID != id {
		s.T.Errorf("%d lines with the root %s, %v: %+v", len(lines), root, err, l)
	}
	return lines
}

func TestAnAddressHasAFewStreamsWithoutAKey(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_LIMITS_ADDRESS_RATE=1000")
	path := drawEvents(s.Campaign(4))
	for range 4 {
		s.Listen(0, "", path, "").WantEvent()
	}
	if more := s.Listen(0, "", path, ""); more.Status != http.StatusTooManyRequests || more.Refusal() != "rate-limited" {
		t.Errorf("one too many: %v", more.Answer)
	}
	s.Listen(0, s.App, path, "").WantEvent()
}

// headOf is the head of an answer.
type headOf struct {
	StatusCode int
	Header     http.Header
}

// plain sends a request as it is: Go's own transport asks for gzip, and unpacks it. The
// error is also one of a body that breaks off.
func plain(t *testing.T, method, url string, header map[string]string) (head headOf, body []byte, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	servers.NoError(t, err)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return head, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return headOf{response.StatusCode, response.Header}, body, err
}

func TestAnybodyReadsAProofAndItIsKeptForEver(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With() // where nobody else reads proofs: an address has few places
	path, purchase := drawnCampaign(s)
	shown := s.Do(0, "", http.MethodGet, path, nil, nil)
	wantAnswer(t, "the draw without a key", shown, 200, `"state":"completed"`, `"freeze":{"hash":"`)
	read := func(method, end string, header map[string]string, status int) (http.Header, []byte) {
		t.Helper()
		head, body, err := plain(t, method, s.URLs[0]+path+end, header)
		if err != nil || head.StatusCode != status {
			t.Fatalf("%s %s, %v: %v, %v", method, end, header, head, err)
		}
		return head.Header, body
	}
	first, body := read(http.MethodGet, "/proof", nil, 200)
	tag := first.Get("ETag")
	if first.Get("Cache-Control") != "public, max-age=31536000, immutable" || first.Get("Content-Type") != "application/json" || first.Get("Vary") != "Accept-Encoding" ||
		strings.HasPrefix(tag, "W/") || len(tag) != 34 {
		t.Errorf("%v", first)
	}
	var tree fairdraw.Tree
	p, err := fairdraw.ReadProof(bytes.NewReader(body), tree.Append)
	if err != nil || tree.Root() != p.Root || tree.Count() != 6 || !fleet.Contains(shown.Body, p.FreezeHash.String()) || bytes.Contains(body, []byte("mina")) {
		t.Errorf("%s: %v", body, err)
	}
	if again, same := read(http.MethodGet, "/proof", map[string]string{"Authorization": "Bearer " + s.App}, 200); !bytes.Equal(same, body) || again.Get("ETag") != tag {
		t.Error("read with a key it is another")
	}
	zipped, packed := read(http.MethodGet, "/proof", map[string]string{"Accept-Encoding": "gzip"}, 200)
	if zipped.Get("Content-Encoding") != "gzip" || zipped.Get("ETag") != "W/"+tag {
		t.Errorf("with gzip: %v", zipped)
	}
	if archive, err := gzip.NewReader(bytes.NewReader(packed)); err != nil {
		t.Error(err)
	} else if unpacked, err := io.ReadAll(archive); err != nil || !bytes.Equal(unpacked, body) {
		t.Errorf("unpacked it is another: %v", err)
	}
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag} {
		if a, rest := read(http.MethodGet, "/proof", map[string]string{"If-None-Match": known}, 304); len(rest) > 0 || a.Get("ETag") != tag {
			t.Errorf("If-None-Match %s: %v", known, a)
		}
	}
	if a, rest := read(http.MethodHead, "/proof", nil, 200); len(rest) > 0 || a.Get("ETag") != tag {
		t.Errorf("HEAD: %v", a)
	}
	list, lines := read(http.MethodGet, "/list", nil, 200)
	if list.Get("Cache-Control") != first.Get("Cache-Control") || len(list.Get("ETag")) != 34 {
		t.Errorf("the list: %v", list)
	}
	var leaves fairdraw.Tree
	if l, err := fairdraw.ReadList(bytes.NewReader(lines), leaves.Append); err != nil || l.Root != p.Root || leaves.Root() != p.Root || l.Count != 6 {
		t.Errorf("%s: %v", lines, err)
	}
	read(http.MethodGet, "/list", map[string]string{"If-None-Match": list.Get("ETag")}, 304)
	own := s.Read("/v1/purchases/" + purchase.String() + "/proof")
	mine, err := fairdraw.ReadPurchaseProof(bytes.NewReader(own.Body))
	if err != nil || len(mine.Leaves) != 3 || mine.Root != p.Root || mine.CheckPaths() != nil || !strings.HasPrefix(own.Header.Get("Cache-Control"), "private") {
		t.Errorf("the purchase: %v %s, %v", own, own.Body, err)
	}
}

func TestBeforeTheDrawThereIsNoProof(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(3)
	path := "/v1/campaigns/" + id.String() + "/draw"
	wantAnswer(t, "a published campaign", s.Do(0, "", http.MethodGet, path, nil, nil), 200, `"freeze":null`)
	for _, end := range []string{"/proof", "/list"} {
		refused(t, end, s.Do(0, "", http.MethodGet, path+end, nil, nil), 409, "state-conflict")
	}
	own := "/v1/purchases/" + s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}).Result.PurchaseID.String() + "/proof"
	for credential, want := range map[string]int{fleet.TokenFor(t, "otto", ""): 404, fleet.TokenFor(t, "mina", ""): 409, s.App: 409} {
		wantAnswer(t, "the proof of a purchase", s.Do(0, credential, http.MethodGet, own, nil, nil), want)
	}
}

func TestAFalseListIsCutOffAndNotServed(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With()
	path, _ := drawnCampaign(s)
	id := uuid.MustParse(strings.Split(path, "/")[3])
	fixture.TamperList(t, s.DB, id)
	for _, end := range []string{"/proof", "/list"} {
		for _, encoding := range []string{"identity", "gzip"} {
			if a, body, err := plain(t, http.MethodGet, s.URLs[0]+path+end, map[string]string{"Accept-Encoding": encoding}); err == nil {
				t.Errorf("%s, %s: a whole answer: %v %s", end, encoding, a, body)
			}
		}
	}
	s.AwaitMetric(0, `triprize_proofs_total{outcome="false-list"}`, 4)
	fixture.TamperList(t, s.DB, id) // for the audit at the end
}

func TestAnybodyReadsWhatThePositionsAreCalled(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := fleet.RawJSON(`{"name":"Hall","currency":"JPY","layers":[{"layer":1,"positions":12,"label":"Row A","price":1200,"prizes":[]},{"layer":2,"positions":3,"price":800,"prizes":[]}]}`)
	id := view(s, s.Post("/v1/campaigns", body), http.StatusCreated).ID.String()
	path := "/v1/campaigns/" + id + "/draw/labels"
	if a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil); a.Status != http.StatusNotFound { // they may change
		t.Errorf("of a draft: %v", a)
	}
	mustAnswer(t, "", s.Post("/v1/campaigns/"+id+"/publish", nil), 200)
	a := s.Do(0, "", http.MethodGet, path, nil, nil)
	expected := `{"campaign_id":"` + id + `","layers":[{"layer":1,"positions":12,"first_number":1,"label":"Row A"},{"layer":2,"positions":3,"first_number":13,"label":null}]}`
	if a.Status != http.StatusOK || strings.TrimSpace(string(a.Body)) != expected || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
		t.Errorf("%v %v %s", a, a.Header, a.Body)
	}
	wantAnswer(t, "known already", s.Do(0, "", http.MethodGet, path, map[string]string{"If-None-Match": a.Header.Get("ETag")}, nil), 304)
}

// Nor is a draft published whose beacon nobody asks any more.
func TestAnInstallationWithoutRelaysRefusesABeacon(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	a, _ := draft(t, s, "/v1/campaigns", map[string]any{"beacon": true})
	wantAnswer(t, "a draft", a, 400, "/policies/beacon", "beacon.relays")
	var d drafted
	for _, policies := range []any{map[string]any{}, map[string]any{"beacon": false}, nil} {
		if a, d = draft(t, s, "/v1/campaigns", policies); a.Status != http.StatusCreated || d.Policies.Beacon {
			t.Errorf("%v: %v", policies, a)
		}
	}
	exec(s, `UPDATE campaigns SET policies = jsonb_set(policies, '{beacon}', 'true') WHERE id = $1`, d.ID)
	path := "/v1/campaigns/" + d.ID.String()
	wantAnswer(t, "published", s.Post(path+"/publish", nil), 409, "beacon.relays")
	if a, d := draft(t, s, path, map[string]any{"beacon": false}); a.Status != http.StatusOK || d.Policies.Beacon {
		t.Errorf("without it: %v", a)
	}
	if rules := publish(t, s, d.ID); rules.Beacon != nil {
		t.Errorf("the rules have a beacon: %+v", rules.Beacon)
	}
}
