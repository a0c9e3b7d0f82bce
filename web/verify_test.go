//go:build web

package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/web"
	"triprize/internal/testkit/servers"
)

func prizes(layer, n int) (list []fairdraw.Prize) {
	for i := range n {
		list = append(list, fairdraw.Prize{Number: i + 1, Layer: layer, Name: fmt.Sprint("prize ", i+1)})
	}
	return list
}

func TestAPurchaseLearnsWhatItWon(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	d := draw{layers: []int{4}, prizes: prizes(1, 4)} // everybody wins
	proof, purchase := d.proof(t, 1)
	r := p.verify(proof, purchase, told{})
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
	// Nobody is told that it took part or won by a document that does not hold.
	wrong := changed(t, proof, func(d map[string]any) { d["trust"] = "beacon" })
	if r := p.verify(wrong, purchase, told{}); r.Verdict == "verified" || len(r.Purchase) > 0 {
		t.Errorf("%+v", r)
	}
}

// What is wrong with a proof of purchase is in the vectors; these are bounds of the engine of the page.
func TestAPurchaseWithAPathThatDoesNotFitIsFound(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, purchase := draw{}.proof(t, 0)
	leaf := func(d map[string]any) map[string]any { return d["leaves"].([]any)[0].(map[string]any) }
	for name, change := range map[string]func(map[string]any){
		"beyond the end": func(d map[string]any) { leaf(d)["index"] = 6 },
		"a longer path":  func(d map[string]any) { leaf(d)["path"] = append(leaf(d)["path"].([]any), strings.Repeat("00", 32)) },
	} {
		if r := p.verify(proof, changed(t, purchase, change), told{}); !slices.Equal(r.with("failed"), []string{"inclusion"}) || r.Verdict != "failed" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Another spelling of the same document is another file. The vectors have those that any reader of JSON may take.
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
		"a mark at the start":  append([]byte("\xef\xbb\xbf"), proof...),
		"an exponent":          replace(`"count":6`, `"count":6e0`),
		"a zero before":        replace(`"count":6`, `"count":06`),
		"a sign":               replace(`"count":6`, `"count":-6`),
		"a slash escaped":      replace(`triprize-draw/1`, `triprize-draw\/1`),
		"upper-case escape":    replace(`\n`, `\u000A`),
		"a surrogate in UTF-8": replace(`🏆`, "\xed\xa0\x80"),
	} {
		if r := p.verify(spelled, nil, told{}); !slices.Equal(r.with("failed"), []string{"form"}) || len(r.with("ok")) > 0 {
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
	if text := p.text("winners"); p.verdict() != "weaker" || !strings.Contains(text, "<img src=x") || title != "Triprize: check a draw" {
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

// saying tells which of some sentences a list has, by a part of each.
func saying(list []string, parts ...string) (found []bool) {
	for _, part := range parts {
		found = append(found, slices.ContainsFunc(list, func(text string) bool { return strings.Contains(text, part) }))
	}
	return found
}

// That nothing changed is said only of what the user noted, and a chain is trusted only when it is named.
func TestWhatTheUserSaysDecidesWhatAProofShows(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	plain, _ := draw{}.proof(t, 0)
	beacon, _ := draw{beacon: true}.proof(t, 0)
	commitment, freezeHash := hashesOf(t, plain)
	for _, c := range []struct {
		proof  []byte
		user   told
		failed []string
		shows  []bool // nothing changed since the commitment; nothing changed after the freeze
		open   []bool // the chain is weaker; the hash of the record tells
	}{
		{plain, told{}, nil, []bool{false, false}, []bool{false, false}},
		{plain, told{Commitment: commitment}, nil, []bool{true, false}, []bool{false, false}},
		{plain, told{FreezeHash: freezeHash}, nil, []bool{false, true}, []bool{false, false}},
		{plain, told{Commitment: freezeHash}, []string{"noted-commitment"}, []bool{false, false}, []bool{false, false}},
		{plain, told{Commitment: commitment, FreezeHash: commitment}, []string{"noted-freeze-hash"}, []bool{false, false}, []bool{false, false}},
		{beacon, told{ChainHashes: []string{chainHash()}}, nil, []bool{false, false}, []bool{true, true}},
		{beacon, told{}, []string{"chain"}, []bool{false, false}, []bool{false, false}},
		{beacon, told{ChainHashes: []string{strings.Repeat("ab", 32)}}, []string{"chain"}, []bool{false, false}, []bool{false, false}},
	} {
		r := p.verify(c.proof, nil, c.user)
		shows := saying(r.Meaning.Shows, "Nothing changed in rules and secret", "Nothing changed after the list was frozen")
		weaker := saying(r.Meaning.Open, "the maker of a chain can know every round beforehand", "The hash of the record tells")
		if !slices.Equal(r.with("failed"), c.failed) || (r.Headline == "verified") != (c.failed == nil) || (r.Verdict == "failed") != (c.failed != nil) || !slices.Equal(shows, c.shows) || !slices.Equal(weaker, c.open) {
			t.Errorf("%+v: %+v", c.user, r)
		}
	}
}

// vectors is what this page uses of proof-vectors.json: files are beside it.
type vectors struct {
	Proofs         []vector
	WrongProofs    []vector                                    `json:"wrong_proofs"`
	WrongPurchases []struct{ Name, File, Proof, Check string } `json:"wrong_purchases"`
}

type vector struct {
	Name, File string
	ChainHash  string `json:"chain_hash"`
	Purchases  []string
	Check      string // that fails, of a wrong one
}

func (v vector) told() told {
	user := told{}
	if v.ChainHash != "" {
		user.ChainHashes = []string{v.ChainHash}
	}
	return user
}

const vectorsFolder = "../draw/fairdraw/testdata"

func readVector(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectorsFolder, name))
	servers.NoError(t, err)
	return data
}

func TestThePublishedVectorsVerifyAndTheWrongOnesFailAsTheySay(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	var v vectors
	servers.NoError(t, json.Unmarshal(readVector(t, "proof-vectors.json"), &v))
	if len(v.Proofs) == 0 || len(v.WrongProofs) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, good := range v.Proofs {
		proof := readVector(t, good.File)
		if r := p.verify(proof, nil, good.told()); r.Verdict != "verified" || r.Headline != "verified" || len(r.Checks) != 14 {
			t.Errorf("%s: %+v", good.Name, r)
		}
		for _, purchase := range good.Purchases {
			if r := p.verify(proof, readVector(t, purchase), good.told()); r.Verdict != "verified" || len(r.Checks) != 17 || len(r.Purchase) == 0 {
				t.Errorf("%s, %s: %+v", good.Name, purchase, r)
			}
		}
	}
	for _, wrong := range v.WrongProofs {
		r := p.verify(readVector(t, wrong.File), nil, wrong.told())
		others := len(r.with("failed")) > 1 && wrong.Check != "chain" // without a beacon in one of both, its round cannot fit either
		if r.Verdict != "failed" || !slices.Contains(r.with("failed"), wrong.Check) || others {
			t.Errorf("%s: want %s to fail: %+v", wrong.Name, wrong.Check, r)
		}
	}
	for _, wrong := range v.WrongPurchases {
		r := p.verify(readVector(t, wrong.Proof), readVector(t, wrong.File), told{})
		if r.Verdict != "failed" || !slices.Contains(r.with("failed"), wrong.Check) || r.Purchase != nil {
			t.Errorf("%s: want %s to fail: %+v", wrong.Name, wrong.Check, r)
		}
	}
}

func TestTheBuiltPageIsThatOfItsSources(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../tools/npm/node_modules/esbuild"); err != nil {
		t.Fatal("esbuild is not installed: run make npm")
	}
	built := filepath.Join(t.TempDir(), "verify.html")
	if out, err := exec.CommandContext(t.Context(), "node", "../draw/web/build.mjs", built).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(built)
	servers.NoError(t, err)
	if !bytes.Equal(page, web.VerifyPage) {
		t.Error("draw/web/verify.html is not what its sources give: run node draw/web/build.mjs")
	}
}
