package stripesim

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"triprize/internal/testkit/servers"
)

func TestTheGuideNamesEveryPaymentMethodAndNoOther(t *testing.T) {
	guide, err := os.ReadFile("../../docs/test-cards.md")
	servers.NoError(t, err)
	named := regexp.MustCompile("`(pm_(?:card|sandbox)_[A-Za-z0-9_]*[A-Za-z0-9])`").FindAllStringSubmatch(string(guide), -1)
	var names []string
	for _, m := range named {
		names = append(names, m[1])
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, Methods()) {
		t.Errorf("the guide has\n%q\nand the sandbox\n%q", names, Methods())
	}
}
