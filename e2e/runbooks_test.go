package e2e

import (
	"os"
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
// severity, and was rehearsed; and no section is about an alert that there is not.
func TestEveryAlertHasItsRunbookAndItsRehearsal(t *testing.T) {
	t.Parallel()
	index, rehearsals := document(t, "../docs/runbooks/README.md"), document(t, "rehearsals_soak_test.go")
	words := regexp.MustCompile(`(?s)\*\*Meaning\.\*\*.+\*\*Check\.\*\*.+\x60\x60\x60sh\n.+\*\*Fix\.\*\*.+\*\*Resolved when\*\* .+`)
	names := make(map[string]bool)
	for _, a := range alerts(t) {
		names[a.Alert] = true
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
	for _, found := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(runbooks(t), -1) {
		if !names[found[1]] {
			t.Errorf("there is no alert %s", found[1])
		}
	}
}

// What must stay 0, or should, has an alert: nobody reads a counter at night.
func TestEveryMetricThatMustStayZeroHasAnAlert(t *testing.T) {
	t.Parallel()
	var expressions string
	for _, a := range alerts(t) {
		expressions += a.Expr + "\n"
	}
	found := regexp.MustCompile("(?m)^- `(triprize_\\w+)[{`].*(?i:must|should) stay 0").FindAllStringSubmatch(document(t, monitoring), -1)
	if len(found) < 9 {
		t.Fatalf("the list has %d", len(found))
	}
	for _, one := range found {
		if !regexp.MustCompile(one[1] + `\b`).MatchString(expressions) {
			t.Errorf("no alert has %s", one[1])
		}
	}
}

// Routes and inhibitions name alerts by hand.
func TestTheRoutesNameOnlyAlertsThatThereAre(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`Triprize[A-Za-z]+`).FindAllString(document(t, "../deploy/alertmanager/alertmanager.yml"), -1) {
		if name != "Triprize" && !strings.Contains(string(rules), "alert: "+name+"\n") && !strings.Contains(string(rules), "alert: "+name+" #") {
			t.Errorf("the routes name %s, which is no alert", name)
		}
	}
}
