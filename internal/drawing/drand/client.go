// Package drand asks relays for rounds of a chain (package beacon), and verifies each.
//
// A relay is not trusted. It can keep a round from us and cannot invent one. A round that
// does not verify is counted (triprize_beacon_answers_total{outcome="lie"}) and logged,
// and the next relay is asked.
//
// A question begins with a random relay. If it fails, or is slow, the next one is asked
// beside it; the first verified round ends the question. Callers of the same round share
// one question.
//
// Bounds: the time of each relay (5 s), the bytes of an answer, and the
// questions to one relay. Redirects are not followed.
package drand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"triprize.example/draw/beacon"
	"triprize/internal/platform/config"
	"triprize/internal/platform/tracing"
)

// ErrNotYet means that a relay has answered that it does not have the round yet, and that
// no other had it either.
var ErrNotYet = errors.New("drand: the round is not there yet")

const (
	maxHeaderBytes = 64 << 10
	idleConns      = 2 // of each relay
	idleTime       = time.Minute
	dialTime       = 5 * time.Second // a connection that nobody waits for any more ends, too
)

// Client asks the relays of the settings. Close it.
type Client struct {
	relays   []*relay
	http     *http.Client
	patience time.Duration // after which the next relay is asked, too

	flights singleflight.Group
	running context.Context //nolint:containedctx // questions are shared: they end with the client, and not with one who asks
	stop    context.CancelFunc
	owned   sync.WaitGroup
}

// New returns a client for the relays of the settings, of which there must be one. Metrics
// go to registry, if there is one.
func New(settings config.Beacon, registry prometheus.Registerer, logger *slog.Logger) (*Client, error) {
	timeout := cmp.Or(settings.Timeout, 5*time.Second) // of one question to one relay
	c := &Client{http: newHTTPClient(), patience: timeout / 4}
	answers := newMetrics(registry)
	for _, base := range settings.URLs() {
		r, err := newRelay(base, timeout, answers, logger)
		if err != nil {
			return nil, fmt.Errorf("drand.New: %w", err)
		}
		c.relays = append(c.relays, r)
	}
	if len(c.relays) == 0 {
		return nil, errors.New("drand.New: beacon.relays names no relay")
	}
	c.running, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// newHTTPClient returns a client whose calls are bounded by their contexts. It speaks
// HTTP/1.1, with one connection for each request: one that hangs delays no other, and the
// bound on connections is one on requests.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dialTime,
			MaxConnsPerHost:        atOnce,
			MaxIdleConnsPerHost:    idleConns,
			IdleConnTimeout:        idleTime,
			MaxResponseHeaderBytes: maxHeaderBytes,
			Protocols:              protocols,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close ends the questions that are under way and waits for them. Nobody may ask then.
func (c *Client) Close() {
	c.stop()
	c.owned.Wait()
	c.http.CloseIdleConnections()
}

// Round returns a round of a chain, verified. When no relay gives it, the error has the
// reason of each; it is ErrNotYet if one of them says that it does not have it yet.
func (c *Client) Round(ctx context.Context, chain beacon.Chain, number uint64) (beacon.Round, error) {
	if number == 0 {
		return beacon.Round{}, errors.New("drand.Round: rounds begin at 1")
	}
	round, err := c.share(ctx, chain, strconv.FormatUint(number, 10), func(ctx context.Context) (beacon.Round, error) { return c.first(ctx, chain, number) })
	if err != nil {
		return beacon.Round{}, fmt.Errorf("drand.Round(%x, %d): %w", chain.Hash(), number, err)
	}
	return round, nil
}

// Latest returns the newest round that the relays give out, verified. All are asked at
// once. When one has answered, the others have a short time left. The errors are those of
// Round.
func (c *Client) Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error) {
	round, err := c.share(ctx, chain, latest, func(ctx context.Context) (beacon.Round, error) { return c.newest(ctx, chain) })
	if err != nil {
		return beacon.Round{}, fmt.Errorf("drand.Latest(%x): %w", chain.Hash(), err)
	}
	return round, nil
}

// share lets all who want the same at the same time share one question. It goes on when
// one of them is gone, and ends with the client.
func (c *Client) share(ctx context.Context, chain beacon.Chain, what string, ask func(context.Context) (beacon.Round, error)) (_ beacon.Round, err error) {
	ctx, span := tracing.Call(ctx, "beacon round", "round", what)
	defer func() { span.End(err) }()
	if err := errors.Join(ctx.Err(), c.running.Err()); err != nil {
		return beacon.Round{}, err
	}
	key := fmt.Sprintf("%x/%s", chain.Hash(), what)
	ended := make(chan reply, 1)
	c.owned.Go(func() {
		round, err, _ := c.flights.Do(key, func() (any, error) { return ask(c.running) })
		r, _ := round.(beacon.Round) // nothing else is asked for
		ended <- reply{r, err}
	})
	select {
	case o := <-ended:
		return o.round, o.err
	case <-ctx.Done():
		return beacon.Round{}, ctx.Err()
	}
}

// reply is what came of one question to one relay.
type reply struct {
	round beacon.Round
	err   error
}

// first returns the first verified round. The relays are asked in random order: each when
// the one before has failed, or has not answered for a while.
func (c *Client) first(ctx context.Context, chain beacon.Chain, number uint64) (beacon.Round, error) {
	ctx, cancel := context.WithCancel(ctx)
	replies := make(chan reply, len(c.relays))
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	order, next, open := rand.Perm(len(c.relays)), 0, 0 //nolint:gosec // it spreads the load; a relay is not trusted whenever it is asked
	ask := func() {
		r := c.relays[order[next]]
		next, open = next+1, open+1
		asked.Go(func() {
			round, err := r.round(ctx, c.http, chain, strconv.FormatUint(number, 10), number)
			replies <- reply{round, err}
		})
	}
	ask()
	impatient := time.NewTicker(c.patience)
	defer impatient.Stop()
	var failed []error
	for open > 0 {
		select {
		case a := <-replies:
			if a.err == nil {
				return a.round, nil
			}
			open, failed = open-1, append(failed, a.err)
		case <-impatient.C:
		}
		if next < len(order) {
			ask()
		}
	}
	return beacon.Round{}, errors.Join(failed...)
}

// newest asks all relays at once, and returns the newest verified round of those that
// answer in time: one relay that is behind hides nothing.
func (c *Client) newest(ctx context.Context, chain beacon.Chain) (best beacon.Round, err error) {
	ctx, cancel := context.WithCancel(ctx)
	replies := make(chan reply, len(c.relays))
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	for _, r := range c.relays {
		asked.Go(func() {
			round, err := r.round(ctx, c.http, chain, latest, 0)
			replies <- reply{round, err}
		})
	}
	var failed []error
	var enough <-chan time.Time // nil: nobody has answered
	for range c.relays {
		select {
		case a := <-replies:
			if a.err != nil {
				failed = append(failed, a.err)
				continue
			}
			if a.round.Number > best.Number {
				best = a.round
			}
			if enough == nil {
				enough = time.After(c.patience)
			}
		case <-enough:
			return best, nil
		}
	}
	if best.Number == 0 {
		return best, errors.Join(failed...)
	}
	return best, nil
}

// outcome is what came of one question to one relay.
type outcome string

const (
	outcomeOK          outcome = "ok"
	outcomeNotYet      outcome = "not-yet"     // the relay does not have the round
	outcomeLie         outcome = "lie"         // what it gave out does not verify
	outcomeUnreadable  outcome = "unreadable"  // no answer of a relay: a page, too many bytes
	outcomeRefused     outcome = "refused"     // another status
	outcomeUnavailable outcome = "unavailable" // no answer in time, or no connection
)

var outcomes = []outcome{outcomeOK, outcomeNotYet, outcomeLie, outcomeUnreadable, outcomeRefused, outcomeUnavailable}

func newMetrics(registry prometheus.Registerer) *prometheus.CounterVec {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_beacon_answers_total",
		Help: "Answers of relays of the beacon, by host and outcome: ok, not-yet (it does not have the round), lie (it does not verify), unreadable, refused, unavailable. A lie is for a person to investigate.",
	}, []string{"relay", "outcome"})
	if registry != nil {
		registry.MustRegister(answers)
	}
	return answers
}
