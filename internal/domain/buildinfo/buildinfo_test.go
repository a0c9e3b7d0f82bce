package buildinfo

import (
	"strings"
	"testing"
)

func TestTheVersionIsThatOfTheLinkerAndNeverEmpty(t *testing.T) {
	defer func(linked string) { version = linked }(version)
	for linked, want := range map[string]string{"": "devel", "v1.2.3": "v1.2.3"} {
		if version = linked; Version() != want || !strings.HasPrefix(Line("api"), "api "+want+" (go1.") || UserAgent() != "triprize/"+want {
			t.Errorf("%q: %s, %s", linked, Line("api"), UserAgent())
		}
	}
}
