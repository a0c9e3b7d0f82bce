package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// blocks returns the shell blocks of a Markdown file after a marker.
func blocks(t *testing.T, file, marker string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), marker)
	if !found {
		t.Fatalf("%s has no %q", file, marker)
	}
	text, _, _ = strings.Cut(text, "\n## ") // to the end of the section
	var script strings.Builder
	for {
		_, rest, more := strings.Cut(text, "```sh\n")
		if !more {
			return script.String()
		}
		block, after, _ := strings.Cut(rest, "```")
		script.WriteString(block + "echo\n")
		text = after
	}
}

func TestTheWalkThroughOfTheReadmeWorksAsPasted(t *testing.T) {
	t.Parallel()
	_, dev := startDev(t, openDir(t))
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", blocks(t, "../../README.md", "<!-- walk-through"))
	cmd.Env = append(os.Environ(), "API="+dev.APIURL, "OPERATOR="+dev.OperatorKey, "APP="+dev.AppKey)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`"state":"active"`, `"commitment":"`, `"amount":600`, "Idempotent-Replayed: true", `"code":"purchase-limit-exceeded"`,
		`"kind":"draw","state":"succeeded"`, `"state":"completed"`, `"name":"A bicycle"`, `"state":"sold"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nothing says %s:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), `"code":"internal-error"`) {
		t.Errorf("an internal error:\n%s", out)
	}
}
