package stripesim

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"triprize/internal/testkit/servers"
)

func guide(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/test-cards.md")
	servers.NoError(t, err)
	return string(data)
}

func TestTheGuideNamesEveryPaymentMethodAndNoOther(t *testing.T) {
	named := regexp.MustCompile("`(pm_(?:card|sandbox)_[A-Za-z0-9_]*[A-Za-z0-9])`").FindAllStringSubmatch(guide(t), -1)
	var names []string
	for _, m := range named {
		names = append(names, m[1])
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, Methods()) {
		t.Errorf("the guide has\n%q\nand the sandbox\n%q", names, Methods())
	}
}

func TestTheGuideOfTestCardsWorksAsPasted(t *testing.T) {
	s := open(t, Settings{})
	var script strings.Builder
	for _, block := range strings.Split(guide(t), "```sh\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		script.WriteString(text + "echo\n")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script.String())
	cmd.Env = append(os.Environ(), "SANDBOX="+s.url, "SANDBOX_KEY="+testKey)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := string(out)
	for _, part := range []string{
		"has ended: succeeded.", `"status": "succeeded"`, `"object": "refund"`, `"amount_received": 500`, `"object": "list"`, `"amount": 250`, `"payment_intent.succeeded"`,
		`"captured": {`, `"jpy": 500`, `"rate_limited": 0`, `"seed": 7`, `"seed": 0`, `"mode": "503"`, `"mode": ""`, `"lacks": [`, `"lacks": null`, `"now": `,
	} {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("nothing says %s, or not in its place:\n%s", part, out)
		}
		rest = after
	}
	if strings.Contains(string(out), `"error"`) {
		t.Errorf("an error:\n%s", out)
	}
}
