package buildinfo

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheLinkerKnowsBestThenTheModule(t *testing.T) {
	t.Parallel()
	module := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for _, c := range []struct {
		linked string
		build  *debug.BuildInfo
		want   string
	}{
		{"v1.2.3", module("v9.9.9"), "v1.2.3"},
		{"v1.2.3", nil, "v1.2.3"},
		{"", module("v1.2.4"), "v1.2.4"},
		{"", module("(devel)"), "devel"},
		{"", module(""), "devel"},
		{"", nil, "devel"},
	} {
		if got := versionOf(c.linked, c.build); got != c.want {
			t.Errorf("%q and %v: %s, want %s", c.linked, c.build, got, c.want)
		}
	}
}

func TestTheVersionIsNeverEmpty(t *testing.T) {
	t.Parallel()
	if Version() == "" || !strings.HasPrefix(Line("api"), "api "+Version()+" (go1.") || UserAgent() != "triprize/"+Version() {
		t.Errorf("%s, %s", Line("api"), UserAgent())
	}
}
