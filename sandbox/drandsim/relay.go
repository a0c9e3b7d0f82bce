package drandsim

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Relay is one relay of a network. It is an http.Handler.
type Relay struct {
	chain, fork *Chain
	clock       func() time.Time
	released    <-chan struct{} // closed when nobody is to wait any more
	url         string
	mux         *http.ServeMux

	mu       sync.Mutex
	faults   Faults
	requests atomic.Int64
}

func newRelay(chain, fork *Chain, clock func() time.Time, released <-chan struct{}) *Relay {
	r := &Relay{chain: chain, fork: fork, clock: clock, released: released, mux: http.NewServeMux()}
	info := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, chain.Info()) }
	for pattern, do := range map[string]http.HandlerFunc{
		"GET /chains":                          r.answering(func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, []string{r.hash()}) }),
		"GET /info":                            r.answering(info),
		"GET /" + r.hash() + "/info":           r.answering(info),
		"GET /public/{round}":                  r.answering(r.round),
		"GET /" + r.hash() + "/public/{round}": r.answering(r.round),
		"GET /control":                         r.control,
		"PUT /control/faults":                  r.putFaults,
		"DELETE /control/faults": func(w http.ResponseWriter, q *http.Request) {
			_ = r.SetFaults(Faults{}) // no fault is a good one
			r.control(w, q)
		},
	} {
		r.mux.HandleFunc(pattern, do)
	}
	return r
}

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) { r.mux.ServeHTTP(w, q) }

// URL is where the relay is.
func (r *Relay) URL() string { return r.url }

// Requests returns how many requests for rounds the relay had.
func (r *Relay) Requests() int64 { return r.requests.Load() }

// SetFaults replaces the faults of the relay.
func (r *Relay) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = f
	return nil
}

// Faults returns what is wrong with the relay.
func (r *Relay) Faults() Faults {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults
}

func (r *Relay) hash() string {
	hash := r.chain.Hash()
	return hex.EncodeToString(hash[:])
}

// answering does not answer while the relay is away.
func (r *Relay) answering(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		away := r.Faults().Away
		if away != "" && away != AwayRefuse {
			r.requests.Add(1)
		}
		switch away {
		case AwayRefuse:
			panic(http.ErrAbortHandler) // net/http closes the connection
		case AwayHang:
			select {
			case <-q.Context().Done():
			case <-r.released:
			}
			panic(http.ErrAbortHandler)
		case AwayError:
			write(w, http.StatusInternalServerError, map[string]string{"error": "this relay has a fault"})
		case AwayHTML:
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!DOCTYPE html><title>Just a moment</title><p>Checking your browser")
		case AwayEndless:
			r.endless(w)
		default:
			next(w, q)
		}
	}
}

// endless writes until the client is gone, or the network ends.
func (r *Relay) endless(w http.ResponseWriter) {
	for blanks := bytes.Repeat([]byte{' '}, 1024); ; {
		select {
		case <-r.released:
			return
		default:
			if _, err := w.Write(blanks); err != nil {
				return
			}
		}
	}
}

// answer is a round as relays give it out.
type answer struct {
	Round      uint64 `json:"round"`
	Randomness string `json:"randomness"`
	Signature  string `json:"signature"`
}

func (r *Relay) round(w http.ResponseWriter, q *http.Request) {
	r.requests.Add(1)
	f := r.Faults()
	newest := r.chain.RoundAt(r.clock().Add(-time.Duration(f.LateS) * time.Second))
	newest -= min(newest, uint64(f.LateRounds)) //nolint:gosec // check keeps it from being negative
	number := newest
	if text := q.PathValue("round"); text != "latest" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil || number == 0 {
			write(w, http.StatusBadRequest, map[string]string{"error": "the round must be a number from 1, or latest"})
			return
		}
	}
	if number == 0 || number > newest {
		write(w, http.StatusTooEarly, map[string]string{"error": "this round is not there yet"})
		return
	}
	write(w, http.StatusOK, r.answer(number, f))
}

// answer returns a round, or a wrong one if the faults ask for it.
func (r *Relay) answer(number uint64, f Faults) answer {
	chain := r.chain
	if f.Forked {
		chain = r.fork
	}
	round := chain.Sign(number)
	switch f.Wrong {
	case WrongRandom:
		_, _ = rand.Read(round.Signature) // never fails
	case WrongOtherRound:
		round = chain.Sign(otherRound(number))
		round.Number = number
	case WrongNumber:
		round = chain.Sign(otherRound(number))
	case WrongRandomness:
		round.Randomness[0] ^= 1
	}
	return answer{Round: round.Number, Randomness: hex.EncodeToString(round.Randomness[:]), Signature: hex.EncodeToString(round.Signature)}
}

// otherRound returns another round that is due: the one before, if there is one.
func otherRound(number uint64) uint64 {
	if number == 1 {
		return 2
	}
	return number - 1
}

func (r *Relay) control(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]any{"requests": r.Requests(), "faults": r.Faults()})
}

// mostFaults bounds the body of a request for faults, in bytes.
const mostFaults = 4096

func (r *Relay) putFaults(w http.ResponseWriter, q *http.Request) {
	var f Faults
	decoder := json.NewDecoder(http.MaxBytesReader(w, q.Body, mostFaults))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err == nil && decoder.More() {
		err = errors.New("drandsim: there is more after the faults")
	}
	if err == nil {
		err = r.SetFaults(f)
	}
	if err != nil {
		write(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	r.control(w, q)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked may be gone
}

// Faults are what is wrong with a relay. The zero value is a relay that works.
type Faults struct {
	LateS      int    `json:"late_s,omitempty"`      // seconds after which it has a round that is due
	LateRounds int    `json:"late_rounds,omitempty"` // rounds by which it is behind
	Wrong      string `json:"wrong,omitempty"`       // how its rounds are wrong; empty: it does not
	Forked     bool   `json:"forked,omitempty"`      // it signs with another key
	Away       string `json:"away,omitempty"`        // how it does not answer; empty: it does
}

// How the rounds of a relay are wrong.
const (
	WrongRandom     = "random"      // random bytes as the signature
	WrongOtherRound = "other-round" // the signature of another round, under the number that was asked for
	WrongNumber     = "number"      // another round, under its own number
	WrongRandomness = "randomness"  // the round, with a randomness that is not its own
)

// How a relay is away.
const (
	AwayRefuse  = "refuse"  // closes the connection without an answer
	AwayHang    = "hang"    // never answers
	AwayError   = "error"   // 500
	AwayHTML    = "html"    // 200 with a page
	AwayEndless = "endless" // 200 with a body that does not end
)

// mostLate bounds both kinds of lateness.
const mostLate = 1 << 30

func (f Faults) check() error {
	if f.LateS < 0 || f.LateS > mostLate || f.LateRounds < 0 || f.LateRounds > mostLate {
		return fmt.Errorf("drandsim: late_s and late_rounds must be 0 to %d", mostLate)
	}
	if kinds := []string{WrongRandom, WrongOtherRound, WrongNumber, WrongRandomness}; f.Wrong != "" && !slices.Contains(kinds, f.Wrong) {
		return fmt.Errorf("drandsim: wrong must be one of %s", strings.Join(kinds, ", "))
	}
	if kinds := []string{AwayRefuse, AwayHang, AwayError, AwayHTML, AwayEndless}; f.Away != "" && !slices.Contains(kinds, f.Away) {
		return fmt.Errorf("drandsim: away must be one of %s", strings.Join(kinds, ", "))
	}
	return nil
}
