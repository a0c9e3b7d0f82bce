//go:build web

package web_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"triprize.example/draw/fairdraw"
)

// draws are one of each kind, with a chain of a test where there is one.
func draws(t *testing.T) map[string]draw {
	t.Helper()
	return map[string]draw{
		"triangle":      {},
		"beacon":        {beacon: true},
		"rows":          {layers: []int{5, 1, 9}},
		"no prizes":     {prizes: []fairdraw.Prize{}},
		"unsold":        {unsold: func(layer, column int) bool { return layer == 2 || column == 2 }},
		"nothing sold":  {unsold: func(int, int) bool { return true }},
		"1,025 sold":    {base: 45, unsold: func(layer, column int) bool { return layer == 45 && column > 35 }},
		"many a layer":  {layers: []int{40}, prizes: prizes(1, 40)},
		"beacon, later": {beacon: true, layers: []int{300}, prizes: prizes(1, 30)},
	}
}

func prizes(layer, n int) (list []fairdraw.Prize) {
	for i := range n {
		list = append(list, fairdraw.Prize{Number: i + 1, Layer: layer, Name: fmt.Sprint("prize ", i+1)})
	}
	return list
}

func TestEveryHonestDrawVerifiesAndEveryBuyerIsInIt(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	for name, d := range draws(t) {
		lines := []int{0}
		if d.unsold == nil {
			lines = []int{0, 1, 2, 5}
		}
		for _, line := range lines {
			proof, purchase := d.proof(t, line)
			r := p.verify(proof, purchase, chainHash())
			if r.Verdict != "verified" || len(r.Checks) < 14 || (purchase != nil && (len(r.Checks) != 17 || len(r.Purchase) == 0)) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

func TestAPurchaseLearnsWhatItWon(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	d := draw{layers: []int{4}, prizes: prizes(1, 4)} // everybody wins
	proof, purchase := d.proof(t, 1)
	r := p.verify(proof, purchase)
	if len(r.Purchase) != 2 || len(r.Purchase[0].Prizes) != 1 || len(r.Purchase[1].Prizes) != 1 {
		t.Errorf("%+v", r)
	}
	p.drop(purchase, proof)
	p.done()
	if text := p.text("purchase-list"); strings.Count(text, "took part and won prize") != 2 {
		t.Error(text)
	}
	if text := p.text("report"); strings.Contains(text, "user ü") {
		t.Errorf("the page shows who the buyer is:\n%s", text)
	}
}

// Nobody is told that it took part or won by a document that does not hold.
func TestNobodyIsToldOfAPrizeByAFalseDocument(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, purchase := draw{layers: []int{4}, prizes: prizes(1, 4)}.proof(t, 1)
	wrong := changed(t, proof, func(d map[string]any) { d["trust"] = "beacon" })
	if r := p.verify(wrong, purchase); r.Verdict == "verified" || len(r.Purchase) > 0 {
		t.Errorf("%+v", r)
	}
}

// Each document has one thing wrong, and the check that is for it says so.
func TestOneWrongThingFailsTheCheckThatIsForIt(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	plain, _ := draw{}.proof(t, 0)
	beacon, _ := draw{beacon: true}.proof(t, 0)
	unsold, _ := draw{unsold: func(layer, _ int) bool { return layer == 2 }}.proof(t, 0)
	object := func(of map[string]any, name string) map[string]any { return of[name].(map[string]any) }
	first := func(of map[string]any, name string) map[string]any { return of[name].([]any)[0].(map[string]any) }
	number := func(of map[string]any, name string, add int) {
		n, _ := of[name].(json.Number).Int64()
		of[name] = n + int64(add)
	}
	hash := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		document []byte
		check    string
		only     bool // it is the only one that fails
		change   func(map[string]any)
	}{
		"a member more":         {plain, "form", true, func(d map[string]any) { d["more"] = 1 }},
		"a member less":         {plain, "form", true, func(d map[string]any) { delete(d, "trust") }},
		"another version":       {plain, "form", true, func(d map[string]any) { d["version"] = "triprize-draw/2" }},
		"upper case":            {plain, "form", true, func(d map[string]any) { d["root"] = strings.Repeat("AB", 32) }},
		"31 February":           {plain, "form", true, func(d map[string]any) { d["frozen_at"] = "2026-02-31T00:00:00.000000Z" }},
		"a line with more":      {plain, "form", true, func(d map[string]any) { first(d, "sold")["user_id"] = "u" }},
		"a fraction":            {plain, "form", true, func(d map[string]any) { d["count"] = 1.5 }},
		"unknown rule":          {plain, "rules", false, func(d map[string]any) { object(d, "rules")["luck"] = true }},
		"too many prizes":       {plain, "rules", false, func(d map[string]any) { first(object(d, "rules"), "layers")["positions"] = 0 }},
		"another prize":         {plain, "commitment", false, func(d map[string]any) { first(object(d, "rules"), "prizes")["name"] = "other" }},
		"another secret":        {plain, "commitment", false, func(d map[string]any) { d["secret"] = hash }},
		"another commitment":    {plain, "commitment", false, func(d map[string]any) { d["commitment"] = hash }},
		"out of order":          {plain, "sold-list", false, func(d map[string]any) { s := d["sold"].([]any); s[4], s[5] = s[5], s[4] }},
		"sold twice":            {plain, "sold-list", false, func(d map[string]any) { s := d["sold"].([]any); s[5] = s[4] }},
		"no such position":      {plain, "sold-list", false, func(d map[string]any) { s := d["sold"].([]any); number(s[5].(map[string]any), "column", 1) }},
		"a line less":           {plain, "count", false, func(d map[string]any) { d["sold"] = d["sold"].([]any)[:5] }},
		"another holder":        {plain, "root", true, func(d map[string]any) { first(d, "sold")["holder"] = hash }},
		"frozen before the end": {unsold, "freeze-time", false, func(d map[string]any) { d["frozen_at"] = "2020-01-01T00:00:00.000000Z" }},
		"another time":          {plain, "freeze-hash", true, func(d map[string]any) { d["frozen_at"] = "2026-01-01T00:00:00.000000Z" }},
		"no beacon":             {beacon, "chain", false, func(d map[string]any) { d["beacon"] = nil }},
		"another chain":         {beacon, "chain", true, func(d map[string]any) { object(d, "beacon")["beacon_id"] = "other" }},
		"another round":         {beacon, "round", false, func(d map[string]any) { number(object(d, "beacon"), "round", 1) }},
		"a later round":         {beacon, "round", false, func(d map[string]any) { number(object(d, "beacon"), "round", 21); number(d, "round", 21) }},
		"an earlier round":      {beacon, "round", false, func(d map[string]any) { number(object(d, "beacon"), "round", -1); number(d, "round", -1) }},
		"no round":              {beacon, "round", false, func(d map[string]any) { d["round"] = nil }},
		"another signature":     {beacon, "signature", false, func(d map[string]any) { object(d, "beacon")["signature"] = hex.EncodeToString(chain().Sign(5)) }},
		"no point":              {beacon, "signature", false, func(d map[string]any) { object(d, "beacon")["signature"] = "c0" + strings.Repeat("00", 47) }},
		"another randomness":    {beacon, "randomness", false, func(d map[string]any) { object(d, "beacon")["randomness"] = hash }},
		"another winner":        {plain, "winners", true, func(d map[string]any) { number(first(d, "winners"), "column", 1) }},
		"another order":         {plain, "winners", true, func(d map[string]any) { w := d["winners"].([]any); w[1], w[2] = w[2], w[1] }},
		"not awarded": {plain, "winners", true, func(d map[string]any) {
			d["winners"].([]any)[0] = map[string]any{"prize": 1, "layer": 2, "name": first(d, "winners")["name"], "awarded": false}
		}},
		"a winner less": {plain, "winners", true, func(d map[string]any) { d["winners"] = d["winners"].([]any)[:2] }},
		"more trust":    {plain, "trust", true, func(d map[string]any) { d["trust"] = "beacon" }},
		"less trust":    {beacon, "trust", true, func(d map[string]any) { d["trust"] = "operator" }},
	} {
		r := p.verify(changed(t, c.document, c.change), nil, chainHash())
		failed := r.with("failed")
		if r.Verdict != "failed" || !slices.Contains(failed, c.check) || (c.only && len(failed) > 1) {
			t.Errorf("%s: %v fail, want %s: %+v", name, failed, c.check, r.Checks)
		}
	}
}

func TestAChainThatNobodyNamedIsNotTrusted(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{beacon: true}.proof(t, 0)
	for _, named := range [][]string{nil, {strings.Repeat("ab", 32)}} {
		if r := p.verify(proof, nil, named...); r.Verdict != "failed" || !slices.Equal(r.with("failed"), []string{"chain"}) {
			t.Errorf("%v named: %+v", named, r)
		}
	}
}

// The two rounds of quicknet that are published, and that circl knows too.
func TestRoundsOfQuicknetVerifyHereAsInCirclAndNoOthers(t *testing.T) {
	t.Parallel()
	var known []struct {
		Round     int
		Signature string
	}
	_ = json.Unmarshal([]byte(`[{"round": 657413, "signature": "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"},
		{"round": 123, "signature": "b75c69d0b72a5d906e854e808ba7e2accb1542ac355ae486d591aa9d43765482e26cd02df835d3546d23c4b13e0dfc92"}]`), &known)
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{beacon: true}.proof(t, 0)
	for _, k := range known {
		for add, want := range map[int]bool{0: true, 1: false} {
			document := changed(t, proof, func(d map[string]any) {
				d["beacon"] = map[string]any{
					"chain_hash":   "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
					"public_key":   "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
					"genesis_time": 1692803367, "genesis_seed": "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e", "beacon_id": "quicknet", "period_s": 3,
					"round": k.Round + add, "signature": k.Signature, "randomness": strings.Repeat("00", 32),
				}
				d["rules"].(map[string]any)["beacon"] = map[string]any{"chain_hash": "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", "period_s": 3}
			})
			ok := p.verify(document, nil).with("ok")
			if !slices.Contains(ok, "chain") || slices.Contains(ok, "signature") != want {
				t.Errorf("round %d with the signature of %d: %v hold", k.Round+add, k.Round, ok)
			}
		}
	}
}

// A proof of purchase of another list, or of nobody in it, is found.
func TestAPurchaseThatIsNotInTheListIsFound(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, purchase := draw{}.proof(t, 0)
	other, _ := draw{layers: []int{6}}.proof(t, 0)
	if r := p.verify(other, purchase); !slices.Contains(r.with("failed"), "purchase-campaign") || r.Purchase != nil {
		t.Errorf("of another list: %+v", r)
	}
	leaf := func(d map[string]any) map[string]any { return d["leaves"].([]any)[0].(map[string]any) }
	for name, change := range map[string]func(map[string]any){
		"another user":   func(d map[string]any) { leaf(d)["user_id"] = "mallory" },
		"another column": func(d map[string]any) { leaf(d)["column"] = 2 },
		"another index":  func(d map[string]any) { leaf(d)["index"] = 5 },
		"beyond the end": func(d map[string]any) { leaf(d)["index"] = 6 },
		"a shorter path": func(d map[string]any) { leaf(d)["path"] = leaf(d)["path"].([]any)[1:] },
		"a longer path":  func(d map[string]any) { leaf(d)["path"] = append(leaf(d)["path"].([]any), strings.Repeat("00", 32)) },
		"a leaf twice":   func(d map[string]any) { l := d["leaves"].([]any); d["leaves"] = []any{l[0], l[0]} },
	} {
		if r := p.verify(proof, changed(t, purchase, change)); !slices.Equal(r.with("failed"), []string{"inclusion"}) || r.Verdict != "failed" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := p.verify(proof, changed(t, purchase, func(d map[string]any) { d["leaves"] = []any{} })); !slices.Equal(r.with("failed"), []string{"purchase-form"}) {
		t.Errorf("without leaves: %+v", r)
	}
}

// Another spelling of the same document is another file.
func TestEveryOtherSpellingIsRefused(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{}.proof(t, 0)
	replace := func(old, spelling string) []byte {
		if !bytes.Contains(proof, []byte(old)) {
			t.Errorf("there is no %s", old)
		}
		return bytes.Replace(proof, []byte(old), []byte(spelling), 1)
	}
	for name, spelled := range map[string][]byte{
		"a newline at the end": append(slices.Clone(proof), '\n'),
		"a mark at the start":  append([]byte("\xef\xbb\xbf"), proof...),
		"a space":              replace(`,"count"`, `, "count"`),
		"a fraction":           replace(`"count":6`, `"count":6.0`),
		"an exponent":          replace(`"count":6`, `"count":6e0`),
		"a zero before":        replace(`"count":6`, `"count":06`),
		"a sign":               replace(`"count":6`, `"count":-6`),
		"a number too large":   replace(`"count":6`, `"count":9007199254740993`),
		"an escape too many":   replace(`"trust":"operator"`, `"trust":"\u006fperator"`),
		"a slash escaped":      replace(`triprize-draw/1`, `triprize-draw\/1`),
		"upper-case escape":    replace(`\n`, `\u000A`),
		"half a character":     replace(`🏆`, `\ud83c`),
		"not UTF-8":            replace(`🏆`, "\xff"),
		"a surrogate in UTF-8": replace(`🏆`, "\xed\xa0\x80"),
		"a member twice":       replace(`"count":6`, `"count":6,"count":6`),
		"members out of order": replace(`"beacon":null,"campaign_id":"`+campaignID.String()+`"`, `"campaign_id":"`+campaignID.String()+`","beacon":null`),
	} {
		if r := p.verify(spelled, nil); !slices.Equal(r.with("failed"), []string{"form"}) || len(r.with("ok")) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Markup in a document is shown as text, and does nothing.
func TestTextsOfADocumentAreShownAsText(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{}.proof(t, 0)
	p.drop(proof)
	p.done()
	var title string
	p.eval(`document.title`, &title)
	if text := p.text("winners"); p.verdict() != "verified" || !strings.Contains(text, "<img src=x") || title != "Triprize: check a draw" {
		t.Error(p.verdict(), title, text)
	}
}

// Every byte counts.
func TestEveryFlippedByteIsFound(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	cases := map[string]draw{"triangle": {}, "unsold rows": {layers: []int{3, 2}, unsold: func(layer, _ int) bool { return layer == 2 }}, "beacon": {beacon: true}}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		proof, purchase := cases[name].proof(t, 0)
		if survivors, tried := p.flip(proof, purchase, false); len(survivors) > 0 || tried != len(flips)*len(proof) {
			t.Errorf("%s: %+v pass of %d", name, survivors, tried)
		}
		if survivors, tried := p.flip(proof, purchase, true); len(survivors) > 0 || tried != len(flips)*len(purchase) {
			t.Errorf("%s: of the proof of purchase %+v pass of %d", name, survivors, tried)
		}
	}
}

// flips are the bits that are flipped of each byte, one after the other.
var flips = []int{1, 2, 32, 128}

type survivor struct{ At, By int }

// flip flips bits of each byte of the proof, or of the proof of purchase, in turn, and
// returns the changes after which no check of the page fails.
func (p *tab) flip(proof, purchase []byte, ofPurchase bool) (survivors []survivor, tried int) {
	p.t.Helper()
	var result struct {
		Survivors []survivor
		Tried     int
	}
	p.eval(fmt.Sprintf(`(() => {
		const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
		const proof = bytes(%s), purchase = bytes(%s), chainHashes = %s, ofPurchase = %t;
		const target = ofPurchase ? purchase : proof;
		let survivors = [], tried = 0;
		for (let at = 0; at < target.length; at++) {
			for (const by of %s) {
				target[at] ^= by;
				const { verdict, checks } = drawVerifier.verify(proof, { purchase: ofPurchase ? purchase : undefined, chainHashes });
				target[at] ^= by;
				tried++;
				if (verdict !== "failed" || !checks.some((c) => c.status === "failed" && c.text)) survivors.push({ At: at, By: by });
			}
		}
		return { Survivors: survivors, Tried: tried };
	})()`, quote(proof), quote(purchase), quote([]string{chainHash()}), ofPurchase, quote(flips)), &result)
	return result.Survivors, result.Tried
}
