package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNobodyTimestampsByDefault(t *testing.T) {
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if s.Timestamps != (Timestamps{Timeout: 5 * time.Second, Margin: 5 * time.Second}) || s.Timestamps.Enabled() {
		t.Errorf("got %+v", s.Timestamps)
	}
}

func TestAuthoritiesAreAddressesWithFiles(t *testing.T) {
	t.Setenv("TRIPRIZE_TIMESTAMPS_AUTHORITIES", "https://tsa.example/tsr?a=b /etc/one root.pem , http://other.example two.pem")
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	want := []Authority{{"https://tsa.example/tsr?a=b", "/etc/one root.pem"}, {"http://other.example", "two.pem"}}
	if got := s.Timestamps.List(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAuthoritiesAreRefusedWithNameAndReason(t *testing.T) {
	const one = "https://tsa.example/tsr root.pem"
	for name, c := range map[string]struct{ variable, value, want string }{
		"no file":          {"AUTHORITIES", "https://tsa.example/tsr", "setting timestamps.authorities (TRIPRIZE_TIMESTAMPS_AUTHORITIES): authority 1 has no file"},
		"no URL":           {"AUTHORITIES", one + ",root.pem", "authority 2 must begin with an http"},
		"another protocol": {"AUTHORITIES", "ftp://tsa.example root.pem", "authority 1 must begin with an http"},
		"nine of them":     {"AUTHORITIES", strings.Repeat(one+",", 9), "has 9 authorities, must have 8 at most"},
		"a default alone":  {"DEFAULT", "true", "setting timestamps.default (TRIPRIZE_TIMESTAMPS_DEFAULT): is true, and there is nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			required(t)
			t.Setenv("TRIPRIZE_TIMESTAMPS_AUTHORITIES", one)
			if c.variable == "DEFAULT" {
				t.Setenv("TRIPRIZE_TIMESTAMPS_AUTHORITIES", "")
			}
			t.Setenv("TRIPRIZE_TIMESTAMPS_"+c.variable, c.value)
			if _, err := Load(""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAuthoritiesHaveTimeToAnswerBeforeTheRound(t *testing.T) {
	t.Parallel()
	authorities := Timestamps{Authorities: "https://tsa.example tsa.pem", Timeout: 5 * time.Second, Margin: 21 * time.Second}
	if err := checkTimestamps(authorities, Beacon{}); err != nil {
		t.Errorf("26 of 27 s: %v", err)
	}
	authorities.Margin = 22 * time.Second
	if err := checkTimestamps(authorities, Beacon{}); err == nil || !strings.Contains(err.Error(), "leaves them 27s") {
		t.Errorf("27 of 27 s: %v", err)
	}
}
