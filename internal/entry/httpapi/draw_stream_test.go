package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/testkit/fleet"
)

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
	l := s.Listen(0, "", drawEvents(d.ID), "")
	first := l.WantEvent()
	before := drawIn(t, first)
	if c := before.Chain; before.State != "active" || before.Freeze != nil || c == nil || c.ChainHash != fairdraw.Hash(s.Beacon.Chain().Hash()) ||
		c.ChainHash != fairdraw.Hash((beacon.Chain{PublicKey: c.PublicKey, GenesisTime: c.GenesisTime, GenesisSeed: c.GenesisSeed, ID: c.BeaconID, PeriodS: c.PeriodS}).Hash()) {
		t.Errorf("before the freeze: %s", first.Data)
	}
	if a := s.Buy(fleet.Order{Campaign: d.ID, User: "mina", Quantity: 2, Wait: true}); a.Refusal() != "" {
		t.Fatal(a)
	}
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
		}
	}
	last := drawIn(t, events[len(events)-1])
	if noted.Freeze == nil || noted.State != "drawing" || noted.Round == nil || noted.RoundDueAt == nil || noted.Secret == nil ||
		noted.Freeze.Hash != fairdraw.FreezeHash(noted.Freeze.Record) || last.State != "completed" || len(last.Winners) == 0 || l.Reason() != "over" {
		t.Errorf("%d events; noted %+v, at the end %+v, %s", len(events), noted, last, l.Reason())
	}
	_, document, err := plain(t, http.MethodGet, s.URLs[0]+"/v1/campaigns/"+d.ID.String()+"/draw/proof", nil)
	if err != nil {
		t.Fatal(err)
	}
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
	if only := late.WantEvent(); only != events[len(events)-1] {
		t.Errorf("to who was away: %+v", only)
	}
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
	if err != nil {
		s.T.Fatal(err)
	}
	if check, err := l.Check(lines); err != nil || l.CampaignID != id {
		s.T.Errorf("%s: %v", check, err)
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
