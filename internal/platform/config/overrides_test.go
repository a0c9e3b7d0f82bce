package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileOverridesAnotherButNotWhatIsReserved(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "own.yaml")
	read := func(text string, reserved ...string) (Overrides, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadOverrides(file, reserved...)
	}
	own, err := read("holds: {ttl: 5m}\nAPI: {cors_origins: 'https://shop.example'}\nlog:\n")
	if err != nil || !own.Has("api.cors_origins") || own.Has("api.listen") {
		t.Fatalf("%v", err)
	}
	text, err := own.Over([]byte("postgres: {url: 'postgres://a/b'}\nredis: {url: 'redis://a'}\nholds: {ttl: 1m, max_per_user: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadFrom(file, nil)
	if err != nil || s.Holds.TTL.Minutes() != 5 || s.Holds.MaxPerUser != 3 || s.API.CORSOrigins != "https://shop.example" || s.Postgres.URL != "postgres://a/b" {
		t.Errorf("%v: %s", err, text)
	}
	for text, reason := range map[string]string{
		"postgres: {url: 'postgres://mine'}":      "setting postgres.url cannot be chosen here",
		"payments: {stripe: {key: sk_test_mine}}": "setting payments.stripe.key cannot be chosen here",
		"holds: {tll: 5m}":                        "unknown setting holds.tll",
		"holds: [":                                file,
	} {
		if _, err := read(text, "postgres", "payments.stripe.key"); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ReadOverrides(file + ".gone"); err == nil {
		t.Error("a file that is not there is read")
	}
}
