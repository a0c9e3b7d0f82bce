package token_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
)

func TestWhatIsSignedIsWhatIsVerified(t *testing.T) {
	t.Parallel()
	settings := config.Tokens{Issuer: "dev", Audience: "triprize", HS256Secret: strings.Repeat("s", 32), RoleClaim: "kind", MaxLifetime: time.Hour}
	v, err := token.NewVerifier(settings, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := token.Sign(settings, "alice", token.Public, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := v.Verify(t.Context(), raw); err != nil || said.Subject != "alice" || said.Role != token.Public || said.Issuer != "dev" {
		t.Errorf("%+v, %v", said, err)
	}
	for reason, sign := range map[string]func() (string, error){
		"subject":   func() (string, error) { return token.Sign(settings, "", token.User, time.Hour, time.Now()) },
		"role":      func() (string, error) { return token.Sign(settings, "alice", "root", time.Hour, time.Now()) },
		"too long":  func() (string, error) { return token.Sign(settings, "alice", token.User, 2*time.Hour, time.Now()) },
		"hs256_sec": func() (string, error) { return token.Sign(config.Tokens{}, "alice", token.User, time.Hour, time.Now()) },
	} {
		if raw, err := sign(); err == nil || raw != "" || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %q, %v", reason, raw, err)
		}
	}
}
