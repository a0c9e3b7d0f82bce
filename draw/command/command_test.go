package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
	"triprize.example/draw/verify"
)

// run runs the command as a part of a tool, and returns what it writes and its status.
func run(args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	tool := &cobra.Command{Use: "tool", SilenceUsage: true, SilenceErrors: true}
	tool.AddCommand(New("verify"))
	tool.SetArgs(append([]string{"verify"}, args...))
	tool.SetOut(&out)
	tool.SetErr(&errs)
	err := tool.Execute()
	if err != nil {
		_, _ = errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), Status(err)
}

func file(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawnCampaign writes a proof document and a proof of purchase of a sold-out campaign of
// three layers to files. The purchase has won the only prize.
func drawnCampaign(t *testing.T, secret byte) (proof, purchase string) {
	t.Helper()
	m := drawn.Triangle(3)
	m.Secret = fairdraw.Hash{secret}
	m.Rules.Prizes = []fairdraw.Prize{{Number: 1, Layer: 1, Name: "A bicycle"}}
	text, err := m.Purchase(t, 0).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return file(t, string(m.Text(t))), file(t, string(text))
}

func TestVerifySaysWhatEachCheckFoundAndWhatTheProofShows(t *testing.T) {
	t.Parallel()
	proof, purchase := drawnCampaign(t, 1)
	out, errs, status := run(proof, "--purchase", purchase)
	for _, want := range []string{"ok        commitment", "ok        winners            the draw gives the same 1 winners of 1 prizes", "ok        inclusion",
		"This purchase has won prize 1, A bicycle, with position 1/1.", "\n\nverified\n\n", "What this proof shows:", "What it does not show:", "trust in the operator alone"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if status != 0 || errs != "" {
		t.Errorf("status %d, %s", status, errs)
	}
	out, _, status = run(proof, "--json")
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
	changed := file(t, strings.Replace(string(text), `"trust":"operator"`, `"trust":"beacon"`, 1))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{changed}, `failed    trust              it says "beacon"`},
		{[]string{changed, "--json"}, `"name":"trust","status":"failed"`},
		{[]string{purchase}, "failed    form"},
		{[]string{proof, "--commitment", strings.Repeat("A", 64)}, "failed    noted-commitment   you noted aaaa"},
		{[]string{changed}, "\nnot verified\n"},
		{[]string{proof, "--purchase", proof}, "failed    purchase-form"},
		{[]string{proof, "--against", other}, "at most one of them is the campaign's"},
	} {
		out, errs, status := run(c.args...)
		if status != 1 || !strings.Contains(out, c.want) || !strings.Contains(errs, "the proof does not hold") || strings.Contains(out, "What this proof shows") {
			t.Errorf("%v: status %d, %s\n%s", c.args, status, errs, out)
		}
	}
}

func TestVerifyEndsWithTwoAndNoVerdictWhenItCannotSayAnything(t *testing.T) {
	t.Parallel()
	proof, _ := drawnCampaign(t, 1)
	signature := strings.Repeat("0", 96)
	// A refusal that was saved in place of a proof says nothing about the draw.
	refusal := file(t, `{"type":"/problems#state-conflict","status":409,"code":"state-conflict","detail":"the campaign is active"}`+"\n")
	const refused = "an error of the server (409 state-conflict: the campaign is active)"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "accepts 1 arg"},
		{[]string{""}, "the name of the proof is empty"},
		{[]string{proof, proof}, "accepts 1 arg"},
		{[]string{"/nowhere/proof.json"}, "/nowhere"},
		{[]string{t.TempDir()}, "directory"},
		{[]string{proof, "--unknown"}, "--unknown"},
		{[]string{proof, "--purchase", "/nowhere"}, "/nowhere"},
		{[]string{proof, "--against", "/nowhere"}, "/nowhere"},
		{[]string{proof, "--chain-hash", "52db"}, "64 hex digits"},
		{[]string{proof, "--commitment", ""}, "64 hex digits"},
		{[]string{proof, "--commitment", "zz"}, "64 hex digits"},
		{[]string{proof, "--freeze-hash", strings.Repeat("0", 63)}, "64 hex digits"},
		{[]string{refusal}, refused},
		{[]string{proof, "--purchase", refusal}, refused},
		{[]string{proof, "--against", refusal}, refused},
		{[]string{proof, "--labels", refusal}, refused},
		{[]string{proof, "--labels", file(t, "Row A")}, ""},
		{[]string{proof, "--labels", file(t, "{}")}, ""},
		{[]string{proof, "--labels", file(t, `{"campaign_id":"0193b0a8-0000-7000-8000-000000000002","layers":[]}`)}, ""},
		// --void takes three files in place of the proof, and no fewer.
		{[]string{"--void", proof}, "--void needs --list and --signature"},
		{[]string{"--void", proof, "--list", proof}, "--void needs --list and --signature"},
		{[]string{proof, "--list", proof}, "belong to --void"},
		{[]string{proof, "--void", proof, "--list", proof, "--signature", signature}, "accepts 0 arg"},
		{[]string{"--void", proof, "--list", proof, "--signature", "00"}, "it must be 96 hex digits"},
		{[]string{"--void", "/nowhere", "--list", proof, "--signature", signature}, "/nowhere"},
		{[]string{"--void", proof, "--list", proof, "--signature", signature}, "the list cannot be read"},
	} {
		if out, errs, status := run(c.args...); status != 2 || out != "" || errs == "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s%s", c.args, status, out, errs)
		}
	}
}

func TestVerifyNamesPositionsAsTheServerDoesAndSaysSo(t *testing.T) {
	t.Parallel()
	proof, purchase := drawnCampaign(t, 1)
	const campaign = `{"campaign_id":"0193b0a8-0000-7000-8000-000000000001","layers":[`
	for _, c := range []struct{ labels, want string }{
		{`{"layer":1,"positions":1,"first_number":1,"label":"Row\u001b A"}]}`, "1/1 (Row� A 1, as the server says, not proven)"},
		{`{"layer":1,"positions":1,"first_number":7,"label":null}]}`, "1/1 (7, as the server says, not proven)"},
		{`{"layer":2,"positions":1,"first_number":1,"label":"B"}]}`, "1/1"},
	} {
		out, errs, status := run(proof, "--purchase", purchase, "--labels", file(t, campaign+c.labels))
		if status != 0 || !strings.Contains(out, "with position "+c.want+".") || !strings.Contains(out, "  prize 1, A bicycle: position "+c.want+"\n") {
			t.Errorf("%s: status %d, %s%s", c.labels, status, out, errs)
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
