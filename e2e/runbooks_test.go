package e2e

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// runbooks returns all pages of runbooks but their index, as one text.
func runbooks(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) != "README.md" {
			text += document(t, file)
		}
	}
	return text
}

// rule is an alert of Prometheus.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// alerts returns the alerts that are shipped.
func alerts(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(document(t, "../deploy/prometheus/rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		all = append(all, slices.DeleteFunc(group.Rules, func(r rule) bool { return r.Alert == "" })...)
	}
	return all
}

// Each alert leads to a section that says what an operator needs, is in the index with its
// severity, and was rehearsed; no section and no route is about an alert that there is not; and what must stay 0 has an alert.
func TestEveryAlertHasItsRunbookAndItsRehearsal(t *testing.T) {
	t.Parallel()
	index, rehearsals := document(t, "../docs/runbooks/README.md"), document(t, "rehearsals_soak_test.go")
	words := regexp.MustCompile(`(?s)\*\*Meaning\.\*\*.+\*\*Check\.\*\*.+\x60\x60\x60sh\n.+\*\*Fix\.\*\*.+\*\*Resolved when\*\* .+`)
	names, expressions := make(map[string]bool), ""
	for _, a := range alerts(t) {
		names[a.Alert] = true
		expressions += a.Expr + "\n"
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		_, section, _ := strings.Cut(document(t, filepath.Join("..", page)), "\n## "+a.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if anchor != strings.ToLower(a.Alert) || !words.MatchString(section) {
			t.Errorf("%s: %s lacks the meaning, the check, the fix or when it is resolved", a.Alert, a.Annotations["runbook_url"])
		}
		severity := a.Labels["severity"]
		shown := map[string]string{"page": "**page**", "ticket": "ticket"}[severity]
		if severity == "ticket" && strings.Contains(a.Expr, ":ratio3d") { // the slow part of an alert that pages, too
			shown = "**page**"
		}
		row := regexp.MustCompile(`(?m)^\| \[` + a.Alert + `\]\(` + filepath.Base(page) + `#` + anchor + `\) \|.*` + regexp.QuoteMeta(shown) + `.*\|$`)
		if shown == "" || a.Annotations["summary"] == "" || !row.MatchString(index) {
			t.Errorf("%s: severity %q; the index has to show it", a.Alert, severity)
		}
		if objective := strings.Contains(a.Expr, ":ratio"); !objective && !regexp.MustCompile(`"`+a.Alert+`[" ]`).MatchString(rehearsals) {
			t.Errorf("%s was never rehearsed", a.Alert)
		}
	}
	routed := regexp.MustCompile(`Triprize[A-Za-z]+`).FindAllString(document(t, "../deploy/alertmanager/alertmanager.yml"), -1)
	for _, found := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(runbooks(t), -1) {
		routed = append(routed, found[1])
	}
	for _, name := range routed { // routes and inhibitions name alerts by hand
		if !names[name] {
			t.Errorf("a runbook or a route names %s, which is no alert", name)
		}
	}
	mustStay := regexp.MustCompile("(?m)^- `(triprize_\\w+)[{`].*(?i:must|should) stay 0").FindAllStringSubmatch(document(t, monitoring), -1)
	if len(mustStay) < 9 {
		t.Fatalf("the list of metrics has %d that must stay 0", len(mustStay))
	}
	for _, one := range mustStay { // nobody reads a counter at night
		if !regexp.MustCompile(one[1] + `\b`).MatchString(expressions) {
			t.Errorf("no alert has %s", one[1])
		}
	}
}
