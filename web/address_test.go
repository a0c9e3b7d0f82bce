//go:build web

package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// fill puts a text into a field, and waits for what the page says then.
func (p *tab) fill(id, text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const field = document.getElementById(%s); field.value = %s; field.dispatchEvent(new Event("change")); })()`, quote(id), quote(text)), nil)
	p.done()
}

// A link can name a chain, and the page says that it did. It can name nothing that was noted: it may be
// the operator's.
func TestAnAddressNamesAChainAndNothingThatTheUserNoted(t *testing.T) {
	t.Parallel()
	proof, _ := draw{beacon: true}.proof(t, 0)
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(proof) })
	address := s.URL + "/verify?campaign=" + campaignID.String() + "&chain=" + strings.ToUpper(chainHash())
	p := open(t, address+"&commitment="+commitmentOf(t, proof)+"&freeze_hash="+freezeHashOf(t, proof).String())
	p.done()
	if title := p.text("verdict-title"); title != "Verified" || !strings.Contains(p.text("from-address"), "names the chain above") {
		t.Error(title, p.text("from-address"))
	}
	if checks := p.text("checks"); strings.Contains(checks, "noted") {
		t.Error(checks)
	}
	p = open(t, address+"&chain="+chainHash())
	p.done()
	if text := p.text("status"); text != "The chain hash must be 64 hex digits." {
		t.Error(text)
	}
}

// The title says whether a proof holds, in a colour of its own where its chain is not drand's.
func TestTheFieldsDecideHowFarAProofGoes(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{beacon: true}.proof(t, 0)
	p.choose("proof", file(t, "proof.json", proof))
	p.done()
	for _, c := range []struct{ field, text, title, class string }{
		{"chain-hash", "xyz", "The chain hash must be 64 hex digits.", ""},
		{"chain-hash", chainHash(), "Verified", "weaker"},
		{"freeze-hash", freezeHashOf(t, proof).String()[1:], "The hash of the freeze record must be 64 hex digits.", ""},
		{"freeze-hash", freezeHashOf(t, proof).String(), "Verified", "weaker"},
		{"commitment", strings.Repeat("ab", 32), "Not verified", "failed"},
	} {
		p.fill(c.field, c.text)
		title := p.text("status")
		if c.class != "" {
			title = p.text("verdict-title")
		}
		if title != c.title || p.verdict() != c.class {
			t.Errorf("%s %q: %q, %q", c.field, c.text, title, p.verdict())
		}
	}
}

// A campaign without a proof says why, and sends its visitor back.
func TestACampaignWithoutADrawSendsItsVisitorBack(t *testing.T) {
	t.Parallel()
	for draw, want := range map[string]string{
		`{"state": "drawing", "freeze": {}, "voids_at": "2026-12-01T10:00:00Z"}`: "The operator has announced to void the draw at 2026-12-01T10:00:00Z. Until then anybody who has the signature of its round can post it, to /v1/campaigns/" + campaignID.String() + "/draw/round.",
		`{"state": "drawing", "freeze": {}, "voids_at": null}`:                   "This campaign is not drawn yet. Its proof will be at this address after the draw.Go back",
		`{"state": "cancelled", "freeze": {}}`:                                   "The draw of this campaign was voided: nothing is drawn.",
		`{"state": "cancelled", "freeze": null}`:                                 "This campaign was cancelled: nothing is drawn.",
		``:                                                                       "This campaign is not drawn yet.",
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/proof") || draw == "" {
				w.WriteHeader(http.StatusConflict)
				return
			}
			_, _ = w.Write([]byte(draw))
		})
		p := open(t, s.URL+"/verify?campaign="+campaignID.String())
		p.done()
		var problem bool
		p.eval(`document.getElementById("status").className === "problem"`, &problem)
		if text := p.text("status") + p.text("back"); problem || !strings.Contains(text, want) || !strings.Contains(text, "Go back") {
			t.Errorf("%s: %t: %s", draw, problem, text)
		}
	}
}
