package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A list whose pages a program has to turn itself is turned wrong.
func TestEveryListHasAnIterator(t *testing.T) {
	t.Parallel()
	generated, err := os.ReadFile("api.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?s)type (\w+)Params struct \{[^}]*?\n\tCursor `).FindAllSubmatch(generated, -1)
	if len(lists) < 6 {
		t.Fatalf("only %d lists are found", len(lists))
	}
	for _, list := range lists {
		if !strings.Contains(string(generated), "page, err := c."+string(list[1])+"(") {
			t.Errorf("%s has no iterator", list[1])
		}
	}
}
