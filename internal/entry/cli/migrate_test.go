package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"triprize/internal/platform/schema"
)

func TestNothingIsRevertedAgainstTheWillOfAnybody(t *testing.T) {
	t.Parallel()
	wallets := []schema.Loss{{What: "wallets", Rows: 3}, {What: "holds.ends_at", Rows: 1}}
	for name, c := range map[string]struct {
		losses   []schema.Loss
		destroy  bool
		terminal bool
		answer   string
		reverted bool
		says     []string
	}{
		"nothing is lost, and nobody is there":       {reverted: true, says: []string{"loses no row"}},
		"nothing is lost, and the answer is yes":     {terminal: true, answer: "yes\n", reverted: true, says: []string{"loses no row", "yes/no"}},
		"nothing is lost, and the answer is no":      {terminal: true, answer: "no\n", says: []string{"not yes"}},
		"the answer is a letter":                     {terminal: true, answer: "y\n", says: []string{"not yes"}},
		"there is no answer":                         {terminal: true, says: []string{"not yes"}},
		"wallets are lost":                           {losses: wallets, says: []string{"wallets: 3 rows", "holds.ends_at: 1 value", "--destroy-data", "docs/operations.md"}},
		"wallets are lost, and a yes is not enough":  {losses: wallets, terminal: true, answer: "yes\n", says: []string{"wallets: 3 rows", "--destroy-data"}},
		"wallets may be lost":                        {losses: wallets, destroy: true, reverted: true, says: []string{"wallets: 3 rows", "docs/operations.md"}},
		"wallets may be lost, but not by everybody":  {losses: wallets, destroy: true, terminal: true, answer: "\n", says: []string{"wallets: 3 rows", "not yes"}},
		"wallets may be lost, and the answer is yes": {losses: wallets, destroy: true, terminal: true, answer: " yes \n", reverted: true, says: []string{"wallets: 3 rows"}},
	} {
		out := new(bytes.Buffer)
		err := mayRevert("00107_wallets.sql", c.losses, question{in: strings.NewReader(c.answer), out: out, terminal: c.terminal}, c.destroy)
		if (err == nil) != c.reverted {
			t.Errorf("%s: %v", name, err)
		}
		said := out.String()
		if err != nil {
			said += err.Error()
		}
		for _, want := range c.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q is not said:\n%s", name, want, said)
			}
		}
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if isTerminal(null) || isTerminal(strings.NewReader("yes\n")) {
		t.Error("nobody types there")
	}
}
