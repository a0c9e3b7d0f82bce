package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

const publicURL = "https://shop.example/triprize"

// public returns a Deliverer for which every name leads to a receiver, as if it was public.
func (w *world) public(r *receiver) *webhook.Deliverer {
	w.t.Helper()
	server := httptest.NewTLSServer(r)
	w.t.Cleanup(server.Close)
	guard, err := sender.NewGuard("")
	servers.NoError(w.t, err)
	sender := sender.NewSender(guard, unhurried, sender.Options{Transport: func(_ bool, made *http.Transport) {
		made.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		made.TLSClientConfig.ServerName = "example.com"
		made.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
	}})
	w.t.Cleanup(sender.Close)
	return webhook.NewDeliverer(w.db, fixture.Key(w.t), sender, w.renderer,
		webhook.DelivererSettings{Concurrency: 2, Timeout: unhurried, GiveUpAfter: 72 * time.Hour, RunTime: w.turn}, servers.Logger(w.t), prometheus.NewRegistry())
}

// unverified makes an endpoint that has to echo a challenge.
func (w *world) unverified() (e webhook.Endpoint) {
	w.t.Helper()
	w.tx(func(tx pgx.Tx) (err error) {
		e, _, err = w.create(tx, webhook.Endpoint{URL: publicURL}, 16)
		return err
	})
	return e
}

// challengeOf returns what a message asks to be echoed; empty: it is no challenge.
func challengeOf(m message) string {
	var body struct {
		Type string
		Data struct{ Challenge string }
	}
	if json.Unmarshal([]byte(m.body), &body) != nil || body.Type != webhook.EndpointVerification {
		return ""
	}
	return body.Data.Challenge
}

func echo(w http.ResponseWriter, m message) { _, _ = io.WriteString(w, challengeOf(m)) }

func (w *world) moveTo(e webhook.Endpoint, url string) {
	w.t.Helper()
	w.tx(func(tx pgx.Tx) error {
		_, err := webhook.Patch(w.t.Context(), tx, e.ID, webhook.Change{URL: &url})
		return err
	})
}

func TestNothingIsSentToAnAddressThatHasNotEchoedAChallengeAlsoAfterAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil) // 200, and no echo
	d := w.public(r)
	e := w.unverified()
	for turn, url := range []string{publicURL, publicURL + "/2"} {
		if turn > 0 {
			w.moveTo(e, url)
			r.then(nil)
		}
		before := len(r.messages())
		w.emit("shop", "purchase.completed", 3)
		if result := w.run(d, e); !result.Claimed || result.Delivered != 0 || result.More {
			t.Fatalf("without an echo: %+v", result)
		}
		if now, got := w.now(e), r.messages()[before:]; now.VerifiedAt != nil || now.ChallengeError == nil || len(got) != 1 || challengeOf(got[0]) == "" ||
			got[0].header.Get("webhook-signature") == "" || w.deliveries(e)[webhook.Pending] != 3 {
			t.Fatalf("without an echo: %+v, got %v", now, got)
		}
		r.then(echo)
		w.clock.MoveOn(time.Minute)
		if result := w.run(d, e); !result.More {
			t.Fatalf("with an echo: %+v", result)
		}
		if now := w.now(e); now.VerifiedAt == nil || now.ChallengeError != nil || now.Failures != 0 {
			t.Fatalf("with an echo: %+v", now)
		}
		if result := w.run(d, e); result.Delivered != 3 {
			t.Fatalf("verified: %+v", result)
		}
		w.clock.MoveOn(time.Minute)
	}
	seen := make(map[string]bool)
	for _, m := range r.messages() {
		if c := challengeOf(m); c != "" && seen[c] {
			t.Errorf("the challenge %s comes again", c)
		} else if c != "" {
			seen[c] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d challenges", len(seen))
	}
}

func TestAnEchoOfAnOlderAddressVerifiesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var e webhook.Endpoint
	r := newReceiver(t, nil)
	r.then(func(rw http.ResponseWriter, m message) {
		w.moveTo(e, publicURL+"/victim") // while the challenge is under way
		echo(rw, m)
	})
	d := w.public(r)
	e = w.unverified()
	if result := w.run(d, e); result.More || len(r.messages()) != 1 {
		t.Errorf("%+v, %d messages", result, len(r.messages()))
	}
	if now := w.now(e); now.VerifiedAt != nil || now.URL != publicURL+"/victim" {
		t.Errorf("verified by another address: %+v", now)
	}
}

func TestAnAddressIsChallengedAFewTimesAndNotOnDemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, status(http.StatusNotFound))
	d := w.public(r)
	e := w.unverified()
	for i := range webhook.MaxChallenges {
		result := w.run(d, e)
		if last := i == webhook.MaxChallenges-1; !result.Claimed || result.Disabled != last {
			t.Fatalf("challenge %d: %+v", i, result)
		}
		w.putOff()
		w.moveTo(e, publicURL) // is no change
		if result := w.run(d, e); result.Claimed {
			t.Fatalf("at once after challenge %d: %+v", i, result)
		}
		w.clock.MoveOn(time.Hour)
	}
	if now := w.now(e); now.DisabledReason == nil || *now.DisabledReason != webhook.Unverified || *now.ChallengeError != "answered 404" {
		t.Fatalf("%+v", now)
	}
	began := time.Now()
	for range 20 { // whoever asks in a loop
		w.tx(func(tx pgx.Tx) error { _, err := webhook.Enable(t.Context(), tx, e.ID, ""); return err })
		w.run(d, e)
		w.moveTo(e, publicURL+"/"+uuidv7.New().String())
		w.leaseEnds(e)
		w.run(d, e)
	}
	if n := len(r.messages()) - webhook.MaxChallenges; n < 1 || n > 1+int(time.Since(began)/(10*time.Second)) { // it may be asked again then
		t.Errorf("%d challenges of one who asks in a loop", n)
	}
}

// A challenge that is cut off is no verdict.
func TestAChallengeThatIsCutOffCountsAsNeverSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	d := w.public(newReceiver(t, func(http.ResponseWriter, message) { cancel(errors.New("draining")); <-ctx.Done() }))
	e := w.unverified()
	servers.NoError(t, d.Run(ctx, w.now(e).Item()))
	if now := w.now(e); now.Failures != 0 || now.VerifiedAt != nil {
		t.Errorf("%+v", now)
	}
}
