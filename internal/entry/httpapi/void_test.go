package httpapi_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

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
	if a := bring(strings.Repeat("0f", 48)); a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
		t.Errorf("before the freeze: %v %s", a, a.Body)
	}
	s.Buy(fleet.Order{Campaign: d.ID, User: "mina", Quantity: 6, Wait: true})
	var now struct {
		State   string
		Round   *uint64
		VoidsAt *string `json:"voids_at"`
		Winners []json.RawMessage
	}
	read := func() {
		a := s.Do(0, "", http.MethodGet, path, nil, nil)
		if err := json.Unmarshal(a.Body, &now); err != nil {
			t.Error(a, err)
		}
	}
	servers.Eventually(t, "it is frozen", func() bool { read(); return now.Round != nil })
	round := s.Beacon.Chain().Sign(*now.Round)
	right := hex.EncodeToString(round.Signature)
	for range 2 {
		if a := bring(right); a.Status != http.StatusOK || !strings.Contains(string(a.Body), hex.EncodeToString(round.Randomness[:])) {
			t.Fatalf("%v %s", a, a.Body)
		}
	}
	if err := relay.SetFaults(drandsim.Faults{Away: drandsim.AwayRefuse}); err != nil {
		t.Fatal(err)
	}
	wrong := hex.EncodeToString(s.Beacon.Chain().Sign(*now.Round + 1).Signature)
	if a := bring(wrong); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "/signature") {
		t.Errorf("of another round: %v %s", a, a.Body)
	}
	servers.Eventually(t, "it is drawn", func() bool { read(); return now.State == "completed" && len(now.Winners) > 0 && now.VoidsAt == nil })
	void := s.Do(0, s.Operator, http.MethodPost, path+"/void", map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": "wait=20"}, map[string]any{"reason": "we do not like it"})
	if void.Refusal() != "state-conflict" {
		t.Errorf("the void of a draw: %v %s", void, void.Body)
	}
}
