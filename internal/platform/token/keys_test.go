package token_test

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
	"triprize/internal/testkit/servers"
)

// unavailable fails the test unless nobody can tell whether the token is good.
func (b bench) unavailable(t *testing.T, what, raw string) {
	t.Helper()
	_, err := b.Verify(t.Context(), raw)
	if fault.CodeOf(err) != fault.Unavailable || err.Error() != "unavailable: tokens cannot be verified at the moment: no keys have been fetched yet" {
		t.Errorf("%s: %v", what, err)
	}
}

func TestWhichKeysAreOfUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method  jwt.SigningMethod
		key     crypto.Signer
		changes object
		usable  bool
	}{
		"RS256":                        {jwt.SigningMethodRS256, rsaKey(), nil, true},
		"RS256, declared":              {jwt.SigningMethodRS256, rsaKey(), object{"alg": "RS256", "use": "sig", "key_ops": []string{"verify"}}, true},
		"PS256":                        {jwt.SigningMethodPS256, rsaKey(), nil, true},
		"PS256, declared":              {jwt.SigningMethodPS256, rsaKey(), object{"alg": "PS256"}, true},
		"ES256":                        {jwt.SigningMethodES256, p256(), object{"alg": "ES256"}, true},
		"EdDSA":                        {jwt.SigningMethodEdDSA, ed(), object{"alg": nil}, true},
		"EdDSA, declared":              {jwt.SigningMethodEdDSA, ed(), object{"alg": "EdDSA"}, true},
		"with a certificate elsewhere": {jwt.SigningMethodRS256, rsaKey(), object{"x5u": "http://127.0.0.1:1/", "x5t": "AAAA", "x5c": []string{"MIIB"}}, true},
		"for encryption":               {jwt.SigningMethodRS256, rsaKey(), object{"use": "enc"}, false},
		"for something new":            {jwt.SigningMethodRS256, rsaKey(), object{"use": "tls"}, false},
		"for signing only":             {jwt.SigningMethodRS256, rsaKey(), object{"key_ops": []string{"sign"}}, false},
		"for RSA-OAEP":                 {jwt.SigningMethodRS256, rsaKey(), object{"alg": "RSA-OAEP"}, false},
		"for RS512":                    {jwt.SigningMethodRS256, rsaKey(), object{"alg": "RS512"}, false},
		"for ES256, but RSA":           {jwt.SigningMethodRS256, rsaKey(), object{"alg": "ES256"}, false},
		"for HS256, but RSA":           {jwt.SigningMethodRS256, rsaKey(), object{"alg": "HS256"}, false},
		"RSA of 1024 bits":             {jwt.SigningMethodRS256, weakRSA(), nil, false},
		"P-384":                        {jwt.SigningMethodES384, p384(), nil, false},
		"P-384 for ES256":              {jwt.SigningMethodES384, p384(), object{"alg": "ES256"}, false},
		"with its private half":        {jwt.SigningMethodEdDSA, ed(), object{"d": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, false},
		"not on its curve":             {jwt.SigningMethodES256, p256(), object{"x": "AAAA"}, false},
		"without a modulus":            {jwt.SigningMethodRS256, rsaKey(), object{"n": nil}, false},
		"of another type":              {jwt.SigningMethodRS256, rsaKey(), object{"kty": "EC"}, false},
		"of an unknown type":           {jwt.SigningMethodRS256, rsaKey(), object{"kty": "new"}, false},
		"without a name":               {jwt.SigningMethodRS256, rsaKey(), object{"kid": nil}, false},
		"with a number for a name":     {jwt.SigningMethodRS256, rsaKey(), object{"kid": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublisher(t, jwk(t, "k", c.key, c.changes), jwk(t, "neighbour", ed(), nil))
			b := newBench(t, p.settings)
			b.believed(t, "its neighbour", b.byKey(t, jwt.SigningMethodEdDSA, "neighbour", ed()))
			b.Close() // waits for the fetch, which logs when the keys are in use already
			want := map[bool]int{false: 1, true: 2}[c.usable]
			if logged := b.log.Take(); !strings.Contains(logged, fmt.Sprintf(`"usable":%d`, want)) {
				t.Errorf("want %d usable keys, logged is %s", want, logged)
			}
			raw := b.byKey(t, c.method, "k", c.key)
			if c.usable {
				b.believed(t, "its token", raw)
				return
			}
			if _, err := b.Verify(t.Context(), raw); fault.CodeOf(err) != fault.Unauthenticated {
				t.Errorf("its token: %v", err)
			}
		})
	}
}

// A secret that an issuer publishes is no secret.
func TestAPublishedSecretSignsNothing(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, object{"kty": "oct", "kid": "k", "alg": "HS256", "k": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}, jwk(t, "ed", ed(), nil))
	b := newBench(t, p.settings)
	b.believed(t, "its neighbour", b.byKey(t, jwt.SigningMethodEdDSA, "ed", ed()))
	b.refused(t, "HS256", b.byKey(t, jwt.SigningMethodHS256, "k", []byte(secret)), "signature")
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, jwk(t, "old", rsaKey(), nil))
	b := newBench(t, p.settings)
	byOld, byNew := b.byKey(t, jwt.SigningMethodRS256, "old", rsaKey()), b.byKey(t, jwt.SigningMethodRS256, "new", otherRSA())
	unknown := b.byKey(t, jwt.SigningMethodRS256, "none", rsaKey()) // causes a fetch
	b.believed(t, "the first key", byOld)
	for what, step := range []struct {
		keys              []object
		first, byOld, new string // the reason why a token is refused; "": it is believed
	}{
		{[]object{jwk(t, "new", otherRSA(), nil), jwk(t, "old", rsaKey(), nil)}, byNew, "", ""},
		{[]object{jwk(t, "new", otherRSA(), nil)}, unknown, "unknown-key", ""},
		{[]object{jwk(t, "new", rsaKey(), nil)}, unknown, "unknown-key", "signature"}, // replaced under its name
		{nil, unknown, "unknown-key", "unknown-key"},
	} {
		p.publish(t, step.keys...)
		b.clock.move(pause)
		if _, err := b.Verify(t.Context(), step.first); (err == nil) != (step.first == byNew) {
			t.Errorf("step %d: %v", what, err)
		}
		for raw, reason := range map[string]string{byOld: step.byOld, byNew: step.new} {
			if reason == "" {
				b.believed(t, fmt.Sprint("step ", what), raw)
			} else {
				b.refused(t, fmt.Sprint("step ", what), raw, reason)
			}
		}
	}
}

// Keys come, and go, without a request that asks for them: by the test's clock no time passes.
func TestKeysAreFetchedAtIntervalsAlsoAfterAFailedFirstFetch(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	p.answerWith(http.StatusServiceUnavailable, "")
	b := newBench(t, func(settings *config.Tokens) {
		p.settings(settings)
		settings.JWKSRefreshInterval = 5 * time.Millisecond
	})
	raw := b.byKey(t, jwt.SigningMethodEdDSA, "k", ed())
	b.unavailable(t, "at start", raw)
	for _, keys := range [][]object{{jwk(t, "k", ed(), nil)}, nil} {
		p.publish(t, keys...)
		servers.Eventually(t, "the keys are those that are published", func() bool {
			_, err := b.Verify(t.Context(), raw)
			return (err == nil) == (keys != nil)
		})
	}
}

func TestMadeUpKeysDoNotReachTheIssuer(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, jwk(t, "k", ed(), nil))
	b := newBench(t, p.settings)
	good := b.byKey(t, jwt.SigningMethodEdDSA, "k", ed())
	b.believed(t, "the key", good)
	storm := func(round int) {
		var all sync.WaitGroup
		for i := range 50 {
			raw := b.byKey(t, jwt.SigningMethodEdDSA, fmt.Sprintf("%d-%d", round, i), ed())
			all.Go(func() {
				if _, err := b.Verify(t.Context(), raw); fault.CodeOf(err) != fault.Unauthenticated {
					t.Errorf("a made-up key: %v", err)
				}
			})
		}
		all.Wait()
	}
	for round := range 4 {
		storm(round)
		b.clock.move(pause - time.Nanosecond)
		storm(round)
		if n := int(p.asked.Load()); n != round+1 { // the first at start
			t.Errorf("asked %d times before pause %d is over", n, round+1)
		}
		b.clock.move(time.Nanosecond)
	}
	b.refused(t, "HS256", b.byKey(t, jwt.SigningMethodHS256, "made-up", []byte(secret)), "signature")
	if n := p.asked.Load(); n != 4 {
		t.Errorf("asked %d times: an algorithm that is never allowed caused one", n)
	}
	b.believed(t, "the key, through it all", good)
}

func TestCachedKeysOutliveTheirServer(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, jwk(t, "k", ed(), nil))
	b := newBench(t, p.settings)
	good, unknown := b.byKey(t, jwt.SigningMethodEdDSA, "k", ed()), b.byKey(t, jwt.SigningMethodEdDSA, "new", ed())
	b.believed(t, "the key", good)
	elsewhere := newPublisher(t)
	for name, spoil := range map[string]func(){
		"an error":        func() { p.answerWith(http.StatusInternalServerError, `{"keys":[]}`) },
		"nothing":         func() { p.answerWith(http.StatusOK, "") },
		"HTML":            func() { p.answerWith(http.StatusOK, "<html>") },
		"something else":  func() { p.answerWith(http.StatusOK, `{"error":"maintenance"}`) },
		"null":            func() { p.answerWith(http.StatusOK, `{"keys":null}`) },
		"too much":        func() { p.answerWith(http.StatusOK, `{"keys":[]}`+strings.Repeat(" ", 1<<20)) },
		"a redirect":      func() { p.handle(http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP) },
		"a broken answer": func() { p.handle(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }) },
		"an endless answer": func() {
			p.handle(func(w http.ResponseWriter, _ *http.Request) {
				for range 64 {
					if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
						return
					}
				}
				t.Error("64 MB were read")
			})
		},
	} {
		spoil()
		before := p.asked.Load()
		b.clock.move(pause)
		b.refused(t, name+": an unknown key", unknown, "unknown-key")
		if p.asked.Load() == before {
			t.Errorf("%s: the server was not asked", name)
		}
		b.believed(t, name+": the cached key", good)
	}
	p.Close()
	b.clock.move(pause)
	b.refused(t, "away: an unknown key", unknown, "unknown-key")
	b.believed(t, "away: the cached key", good)
	if n := elsewhere.asked.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func TestWithoutAnyKeyNobodyCanTell(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	p.handle(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	began, b := time.Now(), newBench(t, func(s *config.Tokens) { p.settings(s); s.JWKSURL += "?key=hunter2" })
	raw := b.byKey(t, jwt.SigningMethodEdDSA, "k", ed())
	b.unavailable(t, "at start", raw)
	b.unavailable(t, "at once again", raw)
	if n, most := int64(p.asked.Load()), 1+int64(time.Since(began)/pause); n < 1 || n > most { // a failed fetch is repeated after a real pause
		t.Errorf("asked %d times", n)
	}
	if logged := b.log.Take(); !strings.Contains(logged, "could not be fetched") || strings.Contains(logged, "hunter2") {
		t.Errorf("it is not logged, or with a secret: %s", logged)
	}
	b.clock.move(pause)
	b.unavailable(t, "after a pause", raw)
	if logged := b.log.Take(); strings.Contains(logged, "could not be fetched") {
		t.Errorf("the same failure is logged again: %s", logged)
	}
	b.refused(t, "an algorithm that is never allowed", b.hs256(t, nil), "signature")
	p.publish(t, jwk(t, "k", ed(), nil))
	b.clock.move(pause)
	b.believed(t, "when the server is back", raw)
	if logged := b.log.Take(); !strings.Contains(logged, "token keys fetched") {
		t.Errorf("nobody is told that it is back: %s", logged)
	}
}

// hang makes the server silent until the test ends, and tells of each request.
func (p *publisher) hang(t *testing.T) <-chan struct{} {
	t.Helper()
	arrived, end := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(end) })
	p.handle(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	return arrived
}

func TestAFetchAndARequestEndThoughTheServerIsSilent(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	p.hang(t)
	patient := newBench(t, func(settings *config.Tokens) { p.settings(settings); settings.JWKSTimeout = time.Hour })
	hasty := newBench(t, func(settings *config.Tokens) { p.settings(settings); settings.JWKSTimeout = 20 * time.Millisecond })
	raw := hasty.byKey(t, jwt.SigningMethodEdDSA, "k", ed())
	hasty.unavailable(t, "a fetch has an end", raw)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := patient.Verify(ctx, raw); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a request has an end: %v", err)
	}
	patient.Close()
}

// A question while the first fetch is about to begin causes no second one.
func TestTheFirstFetchIsMadeOnce(t *testing.T) {
	t.Parallel()
	const starts = 50
	p := newPublisher(t, jwk(t, "k", ed(), nil))
	for range starts {
		b := newBench(t, p.settings)
		b.believed(t, "a token at once", b.byKey(t, jwt.SigningMethodEdDSA, "k", ed()))
		b.Close() // waits for what is under way
	}
	if n := p.asked.Load(); n != starts {
		t.Errorf("asked %d times at %d starts", n, starts)
	}
}

// A client that goes away does not end the fetch that others wait for.
func TestAFetchIsNotItsFirstAsker(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, jwk(t, "k", ed(), nil))
	publish := *p.answer.Load()
	arrived, let := make(chan struct{}), make(chan struct{})
	p.handle(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-let
		publish(w, r)
	})
	b := newBench(t, p.settings)
	raw := b.byKey(t, jwt.SigningMethodEdDSA, "k", ed())
	<-arrived
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := b.Verify(gone, raw); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("who is gone: %v", err)
	}
	close(let)
	b.believed(t, "who stays", raw)
}

// blocked is a log that holds back who writes to it.
type blocked struct{ begun, let chan struct{} }

func (b *blocked) Write(p []byte) (int, error) {
	close(b.begun)
	<-b.let
	return len(p), nil
}

func TestCloseWaitsForItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &blocked{begun: make(chan struct{}), let: make(chan struct{})}
		v, err := token.NewVerifier(config.Tokens{
			Issuer: issuer, Audience: audience, RoleClaim: "role", JWKSRefreshInterval: time.Hour, JWKSTimeout: time.Minute,
			JWKSURL: "http://127.0.0.1:1/", // nobody is there, and the log is told so
		}, time.Now, slog.New(slog.NewTextHandler(log, nil)))
		servers.NoError(t, err)
		<-log.begun
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			v.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("it was still at work")
		default:
		}
		close(log.let)
		<-closed
	})
}

func TestCloseLeavesNothingBehind(t *testing.T) { // not parallel: it counts goroutines
	before := goleak.IgnoreCurrent()
	t.Run("in the middle of a fetch", func(t *testing.T) {
		p := newPublisher(t)
		arrived := p.hang(t)
		b := newBench(t, p.settings)
		<-arrived
		var waiting sync.WaitGroup
		waiting.Go(func() { b.unavailable(t, "while it closes", b.byKey(t, jwt.SigningMethodEdDSA, "k", ed())) })
		b.Close()
		waiting.Wait()
		b.clock.move(pause)
		b.unavailable(t, "when it is closed", b.byKey(t, jwt.SigningMethodEdDSA, "k", ed()))
		b.Close() // again: the cleanup does so too
	})
	t.Run("between fetches", func(t *testing.T) {
		p := newPublisher(t, jwk(t, "k", ed(), nil))
		b := newBench(t, p.settings)
		b.believed(t, "the key", b.byKey(t, jwt.SigningMethodEdDSA, "k", ed()))
		b.Close()
		b.believed(t, "the key, from memory", b.byKey(t, jwt.SigningMethodEdDSA, "k", ed()))
	})
	servers.Eventually(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
}
