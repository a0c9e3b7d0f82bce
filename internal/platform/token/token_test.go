package token_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
	"triprize/internal/testkit/servers"
)

const (
	issuer   = "https://issuer.example/"
	audience = "triprize"
	secret   = "0123456789abcdef0123456789abcdef"
	leeway   = 30 * time.Second
	pause    = 5 * time.Second // between fetches that unknown keys cause
)

// clock stands still until it is moved.
type clock struct{ moved atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(c.moved.Load()))
}

func (c *clock) move(d time.Duration) { c.moved.Add(int64(d)) }

// bench is a verifier with all that surrounds it.
type bench struct {
	*token.Verifier
	clock *clock
	log   *servers.Journal
}

func newBench(t *testing.T, change func(*config.Tokens)) bench {
	t.Helper()
	settings := config.Tokens{Issuer: issuer, Audience: audience, RoleClaim: "role", Leeway: leeway, JWKSRefreshInterval: time.Hour, JWKSTimeout: servers.Patience}
	change(&settings)
	b := bench{clock: new(clock), log: &servers.Journal{}}
	logger := slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	v, err := token.NewVerifier(settings, b.clock.now, logger)
	servers.NoError(t, err)
	t.Cleanup(v.Close)
	b.Verifier = v
	return b
}

func withSecret(settings *config.Tokens) { settings.HS256Secret = secret }

// believed fails the test unless the token is good.
func (b bench) believed(t *testing.T, what, raw string) token.Claims {
	t.Helper()
	claims, err := b.Verify(t.Context(), raw)
	if err != nil {
		t.Errorf("%s: %v, %s", what, err, b.log.Take())
	}
	return claims
}

// unsigned are the reasons before a signature is known to be right: their senders are told nothing.
var unsigned = []string{"malformed", "unverifiable", "signature", "extension", "too-long", "not-in-use", "unknown-key", "unfit-key"}

// refused fails the test unless the token is refused for the given reason, and nothing of
// the token is in the answer or the log.
func (b bench) refused(t *testing.T, what, raw, reason string) {
	t.Helper()
	b.log.Take()
	claims, err := b.Verify(t.Context(), raw)
	if err == nil {
		t.Errorf("%s: believed", what)
		return
	}
	want := "the token is not valid"
	if reason == "expired" {
		want = "the token has expired"
	}
	if fault.CodeOf(err) != fault.Unauthenticated || fault.From(err).Message != want || claims != (token.Claims{}) {
		t.Errorf("%s: %+v, %q, want %q", what, claims, err, want)
	}
	why, ok := errors.AsType[*token.Refusal](err)
	if !ok || why.Reason != reason || !slices.Contains(token.Reasons(), reason) || (why.Claim == "") != slices.Contains(unsigned, reason) {
		t.Errorf("%s: want the reason %q, got %+v", what, reason, why)
	}
	logged := b.log.Take() + fmt.Sprintf("%+v", why)
	for _, part := range strings.Split(raw, ".") {
		plain, _ := base64.RawURLEncoding.DecodeString(part)
		for _, text := range []string{part, string(plain)} {
			if text != "" && strings.Contains(logged, text) {
				t.Errorf("%s: a part of the token is logged: %s", what, logged)
			}
		}
	}
}

type object = map[string]any

// claims returns good claims with changes; a nil takes a claim out.
func (b bench) claims(changes object) object {
	all := object{"iss": issuer, "aud": audience, "sub": "u-1", "exp": b.clock.now().Add(time.Hour).Unix()}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func segment(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	servers.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(text)
}

// sign makes a token; what header has wins over what method says.
func sign(t *testing.T, method jwt.SigningMethod, key any, header, claims object) string {
	t.Helper()
	all := object{"typ": "JWT", "alg": method.Alg()}
	maps.Copy(all, header)
	text := segment(t, all) + "." + segment(t, claims)
	signature, err := method.Sign(text, key)
	servers.NoError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (b bench) hs256(t *testing.T, changes object) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, []byte(secret), nil, b.claims(changes))
}

// Making keys is slow; these are for all tests.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSA = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	weakRSA  = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 1024)) })
	p256     = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	p384     = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
	ed       = sync.OnceValue(func() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, 32)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// jwk describes the public half of a key, with changes; a nil takes a member out.
func jwk(t *testing.T, id string, key crypto.Signer, changes object) object {
	t.Helper()
	described, err := jwkset.NewJWKFromKey(key.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id}})
	servers.NoError(t, err)
	text, err := json.Marshal(described.Marshal())
	servers.NoError(t, err)
	var all object
	servers.NoError(t, json.Unmarshal(text, &all))
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// publisher is the issuer's server.
type publisher struct {
	*httptest.Server
	asked  atomic.Int32
	answer atomic.Pointer[http.HandlerFunc]
}

func newPublisher(t *testing.T, keys ...object) *publisher {
	t.Helper()
	p := &publisher{}
	p.publish(t, keys...)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if !r.Close {
			t.Error("a connection is kept open for minutes")
		}
		(*p.answer.Load())(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// publish makes these the issuer's keys.
func (p *publisher) publish(t *testing.T, keys ...object) {
	t.Helper()
	if keys == nil {
		keys = []object{}
	}
	text, err := json.Marshal(object{"keys": keys})
	servers.NoError(t, err)
	p.answerWith(http.StatusOK, string(text))
}

func (p *publisher) answerWith(status int, body string) {
	p.handle(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func (p *publisher) handle(h http.HandlerFunc) { p.answer.Store(&h) }

func (p *publisher) settings(settings *config.Tokens) { settings.JWKSURL = p.URL + "/keys" }

// byKey signs good claims with a key of an issuer.
func (b bench) byKey(t *testing.T, method jwt.SigningMethod, id string, key any) string {
	t.Helper()
	return sign(t, method, key, object{"kid": id}, b.claims(nil))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
