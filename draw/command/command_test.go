package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/verify"
)

// run runs the command as a part of a tool, and returns what it writes and its status.
func run(args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	tool := &cobra.Command{Use: "tool", SilenceUsage: true, SilenceErrors: true}
	tool.AddCommand(New("verify"))
	tool.SetArgs(args)
	tool.SetOut(&out)
	tool.SetErr(&errs)
	err := tool.Execute()
	if err != nil {
		_, _ = errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), Status(err)
}

// drawnCampaign writes a proof document and a proof of purchase of a sold-out campaign of
// three layers to files. All positions are one purchase's.
func drawnCampaign(t *testing.T, secret byte) (proof, purchase string) {
	t.Helper()
	id := uuid.MustParse("0193b0a8-0000-7000-8000-000000000001")
	rules := fairdraw.NewRules(id, fairdraw.Triangle(3), []fairdraw.Prize{{Number: 1, Layer: 1, Name: "A bicycle"}}, nil)
	text, err := rules.Canonical()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	var sold []fairdraw.Sold
	var page []fairdraw.Hash
	var tree fairdraw.Tree
	for layer := 1; layer <= 3; layer++ {
		for column := 1; column <= layer; column++ {
			s := fairdraw.Sold{Position: fairdraw.Position{Layer: layer, Column: column}, PurchaseID: id, UserID: "aiko"}
			check(tree.Append(s.Line()))
			sold, page = append(sold, s), append(page, fairdraw.LeafHash(s.Line().Leaf()))
		}
	}
	p := fairdraw.Proof{Version: fairdraw.Version, CampaignID: id, Rules: text, Secret: fairdraw.Hash{secret}, Root: tree.Root(), Count: len(sold),
		FrozenAt: fairdraw.At(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)), Trust: fairdraw.TrustOperator}
	p.Commitment = fairdraw.Commitment(id, text, p.Secret[:])
	record, err := p.Record().Canonical()
	check(err)
	p.FreezeHash = fairdraw.FreezeHash(record)
	p.Winners = fairdraw.Winners(fairdraw.Select(rules.Prizes, fairdraw.Lines(sold), fairdraw.NewStream(fairdraw.Entropy(p.Secret[:], id, p.Root, nil))))
	own := fairdraw.PurchaseProof{CampaignID: id, Root: p.Root, Count: p.Count}
	for i, s := range sold {
		path, err := fairdraw.InclusionPath(page, []fairdraw.Hash{p.Root}, i, p.Count)
		check(err)
		own.Leaves = append(own.Leaves, fairdraw.ProofLeaf{Layer: s.Layer, Column: s.Column, PurchaseID: id, Nonce: s.Nonce[:], UserID: s.UserID, Index: i, Path: path})
	}
	proof, purchase = filepath.Join(t.TempDir(), "proof.json"), filepath.Join(t.TempDir(), "purchase.json")
	file, err := os.Create(proof)
	check(err)
	check(fairdraw.WriteProof(file, p, fairdraw.All(fairdraw.Lines(sold))))
	check(file.Close())
	text, err = own.Canonical()
	check(err)
	check(os.WriteFile(purchase, text, 0o600))
	return proof, purchase
}

func TestVerifySaysWhatEachCheckFoundAndWhatTheProofShows(t *testing.T) {
	t.Parallel()
	proof, purchase := drawnCampaign(t, 1)
	out, errs, status := run("verify", proof, "--purchase", purchase)
	for _, want := range []string{"ok        commitment", "ok        winners            the draw gives the same 1 winners of 1 prizes", "ok        inclusion",
		"This purchase has won prize 1, A bicycle, with position 1/1.", "\n\nverified\n\n", "What this proof shows:", "What it does not show:", "trust in the operator alone"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if status != 0 || errs != "" {
		t.Errorf("status %d, %s", status, errs)
	}
	out, _, status = run("verify", proof, "--json")
	var report verify.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 0 || !report.OK || len(report.Checks) != 14 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
}

func TestVerifyEndsWithOneWhenAProofDoesNotHold(t *testing.T) {
	t.Parallel()
	proof, purchase := drawnCampaign(t, 1)
	other, _ := drawnCampaign(t, 2)
	text, err := os.ReadFile(proof)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "changed.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), `"trust":"operator"`, `"trust":"beacon"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify", changed}, `failed    trust              it says "beacon"`},
		{[]string{"verify", changed, "--json"}, `"name":"trust","status":"failed"`},
		{[]string{"verify", purchase}, "failed    form"},
		{[]string{"verify", proof, "--commitment", strings.Repeat("A", 64)}, "failed    noted-commitment   you noted aaaa"},
		{[]string{"verify", changed}, "\nnot verified\n"},
		{[]string{"verify", proof, "--purchase", proof}, "failed    purchase-form"},
		{[]string{"verify", proof, "--against", other}, "at most one of them is the campaign's"},
	} {
		out, errs, status := run(c.args...)
		if status != 1 || !strings.Contains(out, c.want) || !strings.Contains(errs, "the proof does not hold") || strings.Contains(out, "What this proof shows") {
			t.Errorf("%v: status %d, %s\n%s", c.args, status, errs, out)
		}
	}
}

func TestVerifyEndsWithTwoWhenItCannotSayAnything(t *testing.T) {
	t.Parallel()
	proof, _ := drawnCampaign(t, 1)
	for _, args := range [][]string{{"verify"}, {"verify", ""}, {"verify", proof, proof}, {"verify", "/nowhere/proof.json"}, {"verify", proof, "--purchase", "/nowhere"},
		{"verify", proof, "--against", "/nowhere"}, {"verify", proof, "--chain-hash", "52db"},
		{"verify", proof, "--commitment", ""}, {"verify", proof, "--commitment", "zz"}, {"verify", proof, "--freeze-hash", strings.Repeat("0", 63)}, {"verify", proof, "--unknown"}, {"verify", t.TempDir()}} {
		if out, errs, status := run(args...); status != 2 || errs == "" || out != "" {
			t.Errorf("%v: status %d, %s%s", args, status, out, errs)
		}
	}
}

// --void takes three files in place of the proof, and no fewer.
func TestVerifyTakesAVoidedDrawWithItsListAndItsRound(t *testing.T) {
	t.Parallel()
	proof, _ := drawnCampaign(t, 1)
	signature := strings.Repeat("0", 96)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify", "--void", proof}, "--void needs --list and --signature"},
		{[]string{"verify", "--void", proof, "--list", proof}, "--void needs --list and --signature"},
		{[]string{"verify", proof, "--list", proof}, "belong to --void"},
		{[]string{"verify", proof, "--void", proof, "--list", proof, "--signature", signature}, "accepts 0 arg"},
		{[]string{"verify", "--void", proof, "--list", proof, "--signature", "00"}, "it must be 96 hex digits"},
		{[]string{"verify", "--void", "/nowhere", "--list", proof, "--signature", signature}, "/nowhere"},
		{[]string{"verify", "--void", proof, "--list", proof, "--signature", signature}, "the list cannot be read"},
	} {
		if out, errs, status := run(c.args...); status != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s%s", c.args, status, out, errs)
		}
	}
}

// A refusal that was saved in place of a proof says nothing about the draw.
func TestVerifySaysThatARefusalIsNoProof(t *testing.T) {
	t.Parallel()
	proof, _ := drawnCampaign(t, 1)
	refusal := filepath.Join(t.TempDir(), "proof.json")
	if err := os.WriteFile(refusal, []byte(`{"type":"/problems#state-conflict","status":409,"code":"state-conflict","detail":"the campaign is active"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", refusal}, {"verify", proof, "--purchase", refusal}, {"verify", proof, "--against", refusal}, {"verify", proof, "--labels", refusal}} {
		if out, errs, status := run(args...); status != 2 || out != "" || !strings.Contains(errs, "an error of the server (409 state-conflict: the campaign is active)") {
			t.Errorf("%v: status %d, %s%s", args, status, out, errs)
		}
	}
}

func TestVerifyNamesPositionsAsTheServerDoesAndSaysSo(t *testing.T) {
	t.Parallel()
	proof, purchase := drawnCampaign(t, 1)
	dir := t.TempDir()
	labels := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const campaign = `{"campaign_id":"0193b0a8-0000-7000-8000-000000000001","layers":[`
	for _, c := range []struct{ name, labels, want string }{
		{"labelled", campaign + `{"layer":1,"positions":1,"first_number":1,"label":"Row\u001b A"}]}`, "1/1 (Row  A 1, as the server says, not proven)"},
		{"numbered", campaign + `{"layer":1,"positions":1,"first_number":7,"label":null}]}`, "1/1 (7, as the server says, not proven)"},
		{"of other layers", campaign + `{"layer":2,"positions":1,"first_number":1,"label":"B"}]}`, "1/1"},
	} {
		out, errs, status := run("verify", proof, "--purchase", purchase, "--labels", labels(c.name, c.labels))
		if status != 0 || !strings.Contains(out, "with position "+c.want+".") || !strings.Contains(out, "  prize 1, A bicycle: position "+c.want+"\n") {
			t.Errorf("%s: status %d, %s%s", c.name, status, out, errs)
		}
	}
	for name, text := range map[string]string{"not JSON": "Row A", "no labels": `{}`, "of another campaign": `{"campaign_id":"0193b0a8-0000-7000-8000-000000000002","layers":[]}`} {
		if out, errs, status := run("verify", proof, "--labels", labels(name, text)); status != 2 || out != "" || errs == "" {
			t.Errorf("%s: status %d, %s%s", name, status, out, errs)
		}
	}
}

func TestVerifyReadsTheProofFromStandardInput(t *testing.T) {
	t.Parallel()
	proof, _ := drawnCampaign(t, 1)
	file, err := os.Open(proof)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	report, err := input{stdin: file, proof: "-", against: proof}.verify()
	if err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
}
