package stripesim

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Faults befall all requests at random. A probability is from 0 to 1. They end with the
// process.
type Faults struct {
	Seed          uint64  `json:"seed"`
	Decline       float64 `json:"decline"`        // a confirmation that would succeed is declined
	ErrorBefore   float64 `json:"error_before"`   // 500; nothing was done
	ErrorAfter    float64 `json:"error_after"`    // 500; it was done
	TimeoutBefore float64 `json:"timeout_before"` // no answer; nothing was done
	TimeoutAfter  float64 `json:"timeout_after"`  // no answer; it was done
	TooMany       float64 `json:"too_many"`       // 429
	LatencyMS     int64   `json:"latency_ms"`     // before every answer
	HangMS        int64   `json:"hang_ms"`        // how long a request without an answer keeps its connection; 0: Settings.Hang
	WebhookLost   float64 `json:"webhook_lost"`
	WebhookTwice  float64 `json:"webhook_twice"`
	WebhookLate   float64 `json:"webhook_late"`
}

func (f Faults) check() error {
	for _, p := range []float64{f.Decline, f.ErrorBefore, f.ErrorAfter, f.TimeoutBefore, f.TimeoutAfter, f.TooMany, f.WebhookLost, f.WebhookTwice, f.WebhookLate} {
		if p < 0 || p > 1 || p != p {
			return errors.New("a probability must be from 0 to 1")
		}
	}
	if f.ErrorBefore+f.ErrorAfter+f.TimeoutBefore+f.TimeoutAfter+f.TooMany > 1 {
		return errors.New("the probabilities of the faults of one request add up to more than 1")
	}
	const longest = 10 * 60 * 1000
	if f.LatencyMS < 0 || f.HangMS < 0 || f.LatencyMS > longest || f.HangMS > longest {
		return errors.New("latency_ms and hang_ms must be from 0 to 600000")
	}
	return nil
}

// Away is how the sandbox behaves while it is away.
type Away string

// The ways to be away.
const (
	Here        Away = ""
	Unavailable Away = "503"   // every request is answered with 503
	Silent      Away = "reset" // every connection is closed without an answer
)

// outcome is what befalls one request.
type outcome int

const (
	fine outcome = iota
	errorBefore
	errorAfter
	timeoutBefore
	timeoutAfter
	refusedAsTooMany
)

// chance throws the dice for faults. It has a lock of its own.
type chance struct {
	mu     sync.Mutex
	faults Faults
	away   Away
	key    Key
	dice   *rand.Rand
}

func newChance() *chance {
	c := &chance{}
	c.set(Faults{})
	return c
}

func (c *chance) set(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.dice = f, rand.New(rand.NewPCG(f.Seed, 0)) //nolint:gosec // a seed makes it repeatable
}

func (c *chance) get() (Faults, Away) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults, c.away
}

func (c *chance) setAway(a Away) error {
	if a != Here && a != Unavailable && a != Silent {
		return errors.New(`the mode must be "503", "reset" or empty`)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = a
	return nil
}

// request decides what befalls a request.
func (c *chance) request() (o outcome, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults
	thrown := c.dice.Float64()
	for _, one := range []struct {
		of float64
		is outcome
	}{{f.ErrorBefore, errorBefore}, {f.ErrorAfter, errorAfter}, {f.TimeoutBefore, timeoutBefore}, {f.TimeoutAfter, timeoutAfter}, {f.TooMany, refusedAsTooMany}} {
		if thrown < one.of {
			o = one.is
			break
		}
		thrown -= one.of
	}
	return o, time.Duration(f.LatencyMS) * time.Millisecond
}

// declines decides whether a good card is declined.
func (c *chance) declines() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dice.Float64() < c.faults.Decline
}

// webhook decides what befalls an event.
func (c *chance) webhook() (lost, doubled, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults
	return c.dice.Float64() < f.WebhookLost, c.dice.Float64() < f.WebhookTwice, c.dice.Float64() < f.WebhookLate
}

// hang returns how long a request without an answer keeps its connection.
func (c *chance) hang(standard time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults.HangMS > 0 {
		return time.Duration(c.faults.HangMS) * time.Millisecond
	}
	return standard
}
