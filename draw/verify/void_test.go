package verify

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// answer is what a server says of a draw whose round nobody has brought.
func answer(t *testing.T, m *drawn.Draw, change func(map[string]any)) (draw, list []byte) {
	t.Helper()
	p := m.Proof(t)
	d := map[string]any{"state": "cancelled", "rules": p.Rules, "commitment": p.Commitment, "freeze": map[string]any{"hash": p.FreezeHash, "record": p.Record()}, "secret": p.Record().Secret, "chain": nil}
	if b := p.Beacon; b != nil {
		d["chain"] = map[string]any{"chain_hash": b.ChainHash, "public_key": b.PublicKey, "genesis_time": b.GenesisTime, "genesis_seed": b.GenesisSeed, "beacon_id": b.BeaconID, "period_s": b.PeriodS}
	}
	change(d)
	draw, err := json.MarshalIndent(d, "", "  ")
	must(t, err)
	var out bytes.Buffer
	must(t, fairdraw.WriteList(&out, fairdraw.List{CampaignID: p.CampaignID, Count: p.Count, Root: p.Root}, func(yield func(fairdraw.SoldLine, error) bool) {
		for _, line := range drawn.Lines(m.Sold) {
			if !yield(line, nil) {
				return
			}
		}
	}))
	return draw, out.Bytes()
}

// A draw was voided, and somebody has the signature of its round: everybody sees who would have won.
func TestTheWinnersOfADrawThatNeverCameFollowFromItsRound(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3).WithBeacon()
	want := m.Proof(t)
	draw, list := answer(t, m, func(map[string]any) {})
	r, err := Void(bytes.NewReader(draw), bytes.NewReader(list), want.Beacon.Signature, optionsOf(m))
	if err != nil || !r.OK || !reflect.DeepEqual(r.Winners, want.Winners) {
		t.Errorf("%v: %v failed, %+v", err, r.Failed(), r.Winners)
	}
	r, err = Void(bytes.NewReader(draw), bytes.NewReader(list), m.Chain.Sign(*want.Round+1), optionsOf(m))
	if err != nil || r.OK || !slices.Equal(r.Failed(), []string{"signature"}) || r.Winners != nil {
		t.Errorf("with the next round: %v: %v failed, %+v", err, r.Failed(), r.Winners)
	}
	for _, c := range []struct {
		m      *drawn.Draw
		change func(map[string]any)
		want   string
	}{
		{drawn.Triangle(3), func(map[string]any) {}, "has no beacon"},
		{m, func(d map[string]any) { d["state"] = "completed" }, "took place"},
		{m, func(d map[string]any) { d["freeze"] = nil }, "has no freeze record"},
		{m, func(d map[string]any) { d["rules"] = nil }, "has no rules"},
		{m, func(d map[string]any) { d["chain"] = nil }, "not its chain"},
		{drawn.Triangle(2).WithBeacon(), func(map[string]any) {}, "another root or count"},
	} {
		draw, own := answer(t, c.m, c.change)
		if c.want != "another root or count" {
			list = own
		}
		if r, err := Void(bytes.NewReader(draw), bytes.NewReader(list), want.Beacon.Signature, optionsOf(m)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q: %v, %+v", c.want, err, r)
		}
		_, list = answer(t, m, func(map[string]any) {})
	}
}
