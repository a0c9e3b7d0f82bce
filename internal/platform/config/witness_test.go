package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNobodyIsAWitnessByDefault(t *testing.T) {
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if s.Witness != (Witness{Timeout: 5 * time.Second, Margin: 5 * time.Second}) || s.Witness.Enabled() {
		t.Errorf("got %+v", s.Witness)
	}
}

func TestAuthoritiesAreAddressesWithFiles(t *testing.T) {
	t.Setenv("TRIPRIZE_WITNESS_AUTHORITIES", "https://tsa.example/tsr?a=b /etc/one root.pem , http://other.example two.pem")
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	want := []Authority{{"https://tsa.example/tsr?a=b", "/etc/one root.pem"}, {"http://other.example", "two.pem"}}
	if got := s.Witness.List(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAuthoritiesAreRefusedWithNameAndReason(t *testing.T) {
	const one = "https://tsa.example/tsr root.pem"
	for name, c := range map[string]struct{ variable, value, want string }{
		"no file":          {"AUTHORITIES", "https://tsa.example/tsr", "setting witness.authorities (TRIPRIZE_WITNESS_AUTHORITIES): authority 1 has no file"},
		"no URL":           {"AUTHORITIES", one + ",root.pem", "authority 2 must begin with an http"},
		"another protocol": {"AUTHORITIES", "ftp://tsa.example root.pem", "authority 1 must begin with an http"},
		"nine of them":     {"AUTHORITIES", strings.Repeat(one+",", 9), "has 9 authorities, must have 8 at most"},
		"a default alone":  {"DEFAULT", "true", "setting witness.default (TRIPRIZE_WITNESS_DEFAULT): is true, and there is nobody"},
		"no time":          {"TIMEOUT", "0s", "witness.timeout"},
		"a long margin":    {"MARGIN", "1h", "witness.margin"},
	} {
		t.Run(name, func(t *testing.T) {
			required(t)
			t.Setenv("TRIPRIZE_WITNESS_"+c.variable, c.value)
			if _, err := Load(""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
