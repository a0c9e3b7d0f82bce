package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// topics is the written order of the topics: each may import those before it.
var topics = []string{"trail", "lease", "job", "campaign", "inventory", "purchase", "wallet", "payment", "sale", "drawing", "lifecycle", "books"}

// leaves are topics above job that no topic imports.
var leaves = []string{"webhook", "key", "approval", "person"}

// owners has the tables that each topic writes. The audit is below the topics and has tables of its own.
var owners = map[string][]string{
	"trail":             {"audit_trail", "audit_texts", "audit_seals"},
	"job":               {"jobs", "outbox_messages", "refused_jobs"},
	"campaign":          {"campaigns", "campaign_metadata", "commitments", "layers", "prizes", "public_pages"},
	"inventory":         {"positions", "position_fills", "holds", "held_times"},
	"purchase":          {"purchases", "purchase_items"},
	"wallet":            {"wallets", "wallet_events", "wallet_metadata", "wallet_snapshots", "ledger_entries", "authorizations"},
	"payment":           {"payments", "payment_steps", "payment_events", "payment_events_listed", "refunds", "disputes", "balance_transactions", "payment_discrepancies", "reconciled_days", "installation"},
	"drawing":           {"draws", "draw_key_check", "draw_secrets", "draw_voids", "draw_waits", "freezes", "freeze_subtrees", "beacon_chains", "beacon_rounds"},
	"webhook":           {"webhook_attempts", "webhook_deliveries", "webhook_endpoints", "webhook_events", "webhook_secrets"},
	"books":             {"book_facts", "book_periods"},
	"person":            {"erasures"},
	"approval":          {"approvals", "approval_movements"},
	"key":               {"api_keys", "api_clients", "console_sessions", "console_persons"},
	"platform/audit":    {"audit_checks", "audit_violations", "audit_walks"},
	"platform/postgres": {"timelines"},
}

// readsUp are the tables of higher topics that statements of a topic read. It may only get shorter.
var readsUp = map[string][]string{
	"job":       {"api_clients", "campaigns", "payments"},
	"campaign":  {"draw_waits", "draws", "holds", "payments", "positions"},
	"inventory": {"payments", "purchases"},
	"purchase":  {"refunds"},
	"webhook":   {"api_keys"},
}

// room returns the room of a folder of internal: a topic by its name, others by floor and name.
func room(dir string) string {
	parts := strings.Split(dir, "/")
	if slices.Contains(topics, parts[0]) || slices.Contains(leaves, parts[0]) || len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}

// eachFile calls do with every hand-written Go file of a binary.
func eachFile(t *testing.T, mode parser.Mode, do func(dir string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
		if err == nil && filepath.Dir(name) != "." {
			do(filepath.ToSlash(filepath.Dir(name)), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isTopic(room string) bool { return slices.Contains(topics, room) || slices.Contains(leaves, room) }

func TestTopicsImportEachOtherInTheWrittenOrder(t *testing.T) {
	t.Parallel()
	imported := 0
	eachFile(t, parser.ImportsOnly, func(dir string, file *ast.File) {
		from := room(dir)
		floor, _, _ := strings.Cut(dir, "/")
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			path, ours := strings.CutPrefix(path, "triprize/internal/")
			to := room(path)
			if !ours || !isTopic(to) || to == from {
				continue
			}
			imported++
			switch {
			case floor == "platform" || floor == "domain":
				t.Errorf("%s imports the topic %s: imports go down only", dir, path)
			case !isTopic(from):
			case slices.Contains(leaves, to):
				t.Errorf("%s imports %s, which no topic imports", dir, path)
			case slices.Contains(leaves, from) && slices.Index(topics, to) > slices.Index(topics, "job"):
				t.Errorf("%s imports %s: %s lies on job", dir, path, from)
			case !slices.Contains(leaves, from) && slices.Index(topics, to) > slices.Index(topics, from):
				t.Errorf("%s imports %s, which comes after it in the order", dir, path)
			case to != path:
				t.Errorf("%s imports a part of another topic: %s", dir, path)
			}
		}
	})
	if imported == 0 {
		t.Error("no topic is imported: the paths are wrong")
	}
}

var (
	created = regexp.MustCompile(`CREATE TABLE (\w+)`)
	written = regexp.MustCompile(`\b(?:INSERT INTO|UPDATE|DELETE FROM|TRUNCATE)\s+(?:ONLY\s+)?(\w+)`)
	read    = regexp.MustCompile(`(?:^|\s)(?:FROM|JOIN|USING)\s+(?:ONLY\s+)?(\w+)`)
)

func TestOnlyItsTopicWritesATable(t *testing.T) {
	t.Parallel()
	owner := make(map[string]string)
	for room, tables := range owners {
		for _, table := range tables {
			owner[table] = room
		}
	}
	files, err := filepath.Glob("../migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range created.FindAllSubmatch(text, -1) {
			if table := string(match[1]); owner[table] == "" {
				t.Errorf("%s creates %s, which no topic owns", file, table)
			}
		}
	}
	rank := make(map[string]int)
	for i, topic := range slices.Concat(topics, leaves) {
		rank[topic] = i
	}
	up := make(map[string]map[string]bool)
	eachFile(t, parser.SkipObjectResolution, func(dir string, file *ast.File) {
		from := room(dir)
		if strings.HasPrefix(dir, "testkit") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			sql, _ := strconv.Unquote(text.Value)
			for _, match := range written.FindAllStringSubmatch(sql, -1) {
				if owner[match[1]] != "" && owner[match[1]] != from {
					t.Errorf("%s writes %s, which is of %s", dir, match[1], owner[match[1]])
				}
			}
			if !isTopic(from) {
				return true // entry and the audit may read everything
			}
			for _, match := range read.FindAllStringSubmatch(strings.ReplaceAll(sql, "DELETE FROM", "DELETE"), -1) {
				of := owner[match[1]]
				if of == "" || of == from || !slices.Contains(leaves, of) && rank[of] < rank[from] {
					continue
				}
				if up[from] == nil {
					up[from] = make(map[string]bool)
				}
				up[from][match[1]] = true
			}
			return true
		})
	})
	got := make(map[string][]string)
	for topic, tables := range up {
		got[topic] = slices.Sorted(maps.Keys(tables))
	}
	if fmt.Sprint(got) != fmt.Sprint(readsUp) {
		t.Errorf("topics read tables of higher topics:\n%v\nthe list has, and may only get shorter:\n%v", got, readsUp)
	}
}
