package timestamp_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/config"
	"triprize/internal/platform/timestamp"
	"triprize/sandbox/tsasim"
)

var digest = fairdraw.Hash(sha256.Sum256([]byte("a freeze record")))

// patience is for what happens at once; a busy machine may take its time.
const patience = time.Minute

func client(t *testing.T, registry prometheus.Registerer, timeout time.Duration, authorities ...string) *timestamp.Client {
	t.Helper()
	c, err := timestamp.New(config.Timestamps{Authorities: strings.Join(authorities, ","), Timeout: timeout}, registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stampBy asks all authorities of a client.
func stampBy(t *testing.T, c *timestamp.Client) ([]timestamp.Token, error) {
	t.Helper()
	return c.Stamp(t.Context(), digest, c.Authorities())
}

func stamp(t *testing.T, a *tsasim.Authority) timestamp.Token {
	t.Helper()
	tokens, err := stampBy(t, client(t, nil, patience, a.URL+" "+a.Chain))
	if err != nil || len(tokens) != 1 {
		t.Fatalf("%d tokens, %v", len(tokens), err)
	}
	return tokens[0]
}

// When an authority leaves certificates out, its token still can be checked with the hash of its root alone.
func TestATokenOfARealAuthorityNeedsNothingButTheHashOfItsRoot(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]tsasim.Options{
		"RSA":                      {},
		"ECDSA":                    {ECDSA: true},
		"RSA and intermediate":     {Intermediate: true},
		"ECDSA and intermediate":   {ECDSA: true, Intermediate: true},
		"only the signer in it":    {WithoutRoot: true},
		"intermediate is left out": {Intermediate: true, WithoutRoot: true},
		"accuracy and fractions":   {Accuracy: "secs:1, millisecs:500, microsecs:100", Digits: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tsasim.Start(t, o)
			before := time.Now().Add(-time.Second) // without digits, openssl cuts the second
			token := stamp(t, a)
			if token.Authority != fairdraw.Hash(a.Root) || token.GenTime.Before(before) || token.GenTime.After(time.Now()) {
				t.Errorf("%+v", token)
			}
			if want := map[bool]time.Duration{true: 1500100 * time.Microsecond}[o.Accuracy != ""]; token.Accuracy != want {
				t.Errorf("the accuracy is %s, want %s", token.Accuracy, want)
			}
			again, err := timestamp.Check(token.DER, digest, []fairdraw.Hash{{1}, a.Root})
			if err != nil || again.Authority != token.Authority || !again.GenTime.Equal(token.GenTime) {
				t.Errorf("checked again: %+v, %v", again, err)
			}
			if err := a.Verify(t, token.DER, digest); err != nil {
				t.Errorf("openssl does not agree: %v", err)
			}
		})
	}
}

func TestATokenIsBeforeAMomentOnlyWithItsWholeAccuracy(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	token := timestamp.Token{GenTime: at, Accuracy: 2 * time.Second}
	for after, want := range map[time.Duration]bool{-time.Hour: false, 0: false, time.Second: false, 2 * time.Second: false, 2*time.Second + 1: true} {
		if token.Before(at.Add(after)) != want {
			t.Errorf("%s after its time: %t", after, !want)
		}
	}
}

func TestOneAuthorityThatHangsOrLiesDoesNotTakeTheOthersTokens(t *testing.T) {
	t.Parallel()
	good, other := tsasim.Start(t, tsasim.Options{}), tsasim.Start(t, tsasim.Options{ECDSA: true})
	asked := make(chan struct{})
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-release }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) })
	registry := prometheus.NewRegistry()
	c := client(t, registry, 5*time.Second, good.URL+" "+good.Chain, hanging.URL+" "+other.Chain)
	tokens, err := c.Stamp(t.Context(), digest, c.Authorities())
	<-asked
	if len(tokens) != 1 || tokens[0].Authority != fairdraw.Hash(good.Root) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
	again, err := c.Stamp(t.Context(), digest, []fairdraw.Hash{good.Root}) // only who is named is asked
	if err != nil || len(again) != 1 || again[0].Authority != fairdraw.Hash(good.Root) {
		t.Errorf("%d tokens, %v", len(again), err)
	}
	if again, err := c.Stamp(t.Context(), digest, []fairdraw.Hash{{1}}); err == nil || len(again) != 0 {
		t.Errorf("%d tokens of an authority that nobody knows, %v", len(again), err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 2*3 {
		t.Fatalf("the outcomes are %v, %v", families, err)
	}
	for _, m := range families[0].GetMetric() { // each authority with all outcomes, before the first
		switch outcome, n := m.GetLabel()[1].GetValue(), m.GetCounter().GetValue(); {
		case n == 2 && outcome == "token", n == 1 && outcome == "unavailable", n == 0:
		default:
			t.Errorf("%v of %s", n, outcome)
		}
	}
	if roots := c.Authorities(); len(roots) != 2 || roots[0] != fairdraw.Hash(good.Root) || roots[1] != fairdraw.Hash(other.Root) {
		t.Errorf("the authorities are %v", roots)
	}
}

// An answer that is for another query, from somebody else, or nothing at all.
func TestAnAnswerThatDoesNotHoldIsRefused(t *testing.T) {
	t.Parallel()
	a, stranger := tsasim.Start(t, tsasim.Options{}), tsasim.Start(t, tsasim.Options{Number: 1})
	expired := tsasim.Start(t, tsasim.Options{Expired: true})
	earlier := make([]byte, 0)
	ask := func(a *tsasim.Authority, query []byte) []byte {
		reply, err := a.Reply(query)
		if err != nil {
			t.Error(err)
		}
		return reply
	}
	recording := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, _ := io.ReadAll(r.Body)
		earlier = ask(a, query)
		_, _ = w.Write(earlier)
	}))
	t.Cleanup(recording.Close)
	if _, err := stampBy(t, client(t, nil, patience, recording.URL+" "+a.Chain)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer func(query []byte) []byte
		want   string
	}{
		"an old answer": {func([]byte) []byte { return earlier }, "nonce of the query"},
		"about something else": {func(q []byte) []byte {
			return ask(a, []byte(strings.Replace(string(q), string(digest[:]), strings.Repeat("x", 32), 1)))
		}, "about the digest"},
		"not its pinned root":      {func(q []byte) []byte { return ask(stranger, q) }, "its certificates"},
		"an expired certificate":   {func(q []byte) []byte { return ask(expired, q) }, "expired"},
		"a refusal":                {func([]byte) []byte { return ask(a, []byte("no query")) }, "refuses: status 2, bad data format"},
		"nothing":                  {func([]byte) []byte { return nil }, "no timestamp response"},
		"garbage":                  {func([]byte) []byte { return []byte("<html>captive portal</html>") }, "no timestamp response"},
		"something after it":       {func(q []byte) []byte { return append(ask(a, q), 0) }, "no timestamp response"},
		"no end of the answer":     {func([]byte) []byte { return make([]byte, 1<<20) }, "more than"},
		"cut":                      {func(q []byte) []byte { r := ask(a, q); return r[:len(r)-1] }, "no timestamp response"},
		"granted without a token":  {func([]byte) []byte { return []byte{0x30, 5, 0x30, 3, 2, 1, 0} }, "no token"},
		"an error of the server":   {nil, "500"},
		"a redirect to somewhere":  {nil, "307"},
		"a connection that breaks": {nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			chain := a.Chain
			if name == "an expired certificate" {
				chain = expired.Chain
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch name {
				case "an error of the server":
					w.WriteHeader(http.StatusInternalServerError)
				case "a redirect to somewhere":
					http.Redirect(w, r, recording.URL, http.StatusTemporaryRedirect)
				case "a connection that breaks":
					panic(http.ErrAbortHandler)
				default:
					query, _ := io.ReadAll(r.Body)
					_, _ = w.Write(c.answer(query))
				}
			}))
			defer server.Close()
			tokens, err := stampBy(t, client(t, nil, patience, server.URL+" "+chain))
			if len(tokens) != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d tokens, %v; want %q", len(tokens), err, c.want)
			}
		})
	}
}

func TestAuthoritiesWithoutTheirCertificatesAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	a := tsasim.Start(t, tsasim.Options{})
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, authorities := range map[string]string{
		"no such file":    "http://127.0.0.1:1 /nowhere/root.pem",
		"has none in PEM": "http://127.0.0.1:1 " + empty,
		"one authority":   a.URL + " " + a.Chain + ",http://127.0.0.1:1 " + a.Chain,
	} {
		_, err := timestamp.New(config.Timestamps{Authorities: authorities, Timeout: time.Second}, nil, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", authorities, err)
		}
	}
}
