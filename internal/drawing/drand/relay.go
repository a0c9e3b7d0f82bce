package drand

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/buildinfo"
)

const (
	latest         = "latest" // in the place of a round's number
	atOnce         = 8        // questions to one relay that are under way; others wait, within their time
	maxAnswerBytes = 4096     // drand's own has about 300
	newsInterval   = time.Minute
)

// relay is one relay.
type relay struct {
	base    string // URL, without a slash at the end
	host    string
	timeout time.Duration
	answers *prometheus.CounterVec
	logger  *slog.Logger
	lies    rate.Sometimes // a lie is logged, at most once in newsInterval
	faults  rate.Sometimes // and so is any other fault
}

func newRelay(base string, timeout time.Duration, answers *prometheus.CounterVec, logger *slog.Logger) (*relay, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, errors.New("a relay is no URL")
	}
	r := &relay{base: base, host: u.Host, timeout: timeout, answers: answers, logger: logger,
		lies: rate.Sometimes{Interval: newsInterval}, faults: rate.Sometimes{Interval: newsInterval}}
	for _, o := range outcomes {
		answers.WithLabelValues(r.host, string(o))
	}
	return r, nil
}

// round asks for a round, or for the latest one, and verifies it. number is the one that
// the answer must have; 0: any. The outcome is counted, unless ctx has ended: then
// nobody wanted the answer any more.
func (r *relay) round(ctx context.Context, client *http.Client, chain beacon.Chain, which string, number uint64) (beacon.Round, error) {
	round, o, err := r.ask(ctx, client, chain, which, number)
	if ctx.Err() != nil {
		return beacon.Round{}, ctx.Err()
	}
	r.answers.WithLabelValues(r.host, string(o)).Inc()
	if err != nil {
		level, sometimes := slog.LevelWarn, &r.faults
		if o == outcomeLie {
			level, sometimes = slog.LevelError, &r.lies
		}
		if o != outcomeNotYet {
			sometimes.Do(func() {
				r.logger.Log(ctx, level, "a relay of the beacon did not answer as it should", "relay", r.host, "round", which, "outcome", string(o), "error", err)
			})
		}
		return beacon.Round{}, fmt.Errorf("%s: %w", r.host, err)
	}
	return round, nil
}

func (r *relay) ask(ctx context.Context, client *http.Client, chain beacon.Chain, which string, number uint64) (beacon.Round, outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	body, o, err := r.get(ctx, client, chain, which)
	if err != nil {
		return beacon.Round{}, o, err
	}
	var said answer
	if json.Unmarshal(body, &said) != nil || said.Round == 0 || len(said.Signature) != beacon.SignatureSize {
		return beacon.Round{}, outcomeUnreadable, errors.New("the answer is no JSON of a round") // the library would repeat what was sent
	}
	round, err := said.verify(chain, number)
	if err != nil {
		return beacon.Round{}, outcomeLie, err
	}
	return round, outcomeOK, nil
}

// get returns the body of a good answer.
func (r *relay) get(ctx context.Context, client *http.Client, chain beacon.Chain, which string) ([]byte, outcome, error) {
	hash := chain.Hash()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/"+hex.EncodeToString(hash[:])+"/public/"+which, nil)
	if err != nil {
		return nil, outcomeUnavailable, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", buildinfo.UserAgent())
	answer, err := client.Do(request)
	if err != nil {
		return nil, outcomeUnavailable, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusTooEarly: // which of them, depends on the release of the relay
		return nil, outcomeNotYet, fmt.Errorf("the answer is %d: %w", answer.StatusCode, ErrNotYet)
	default:
		return nil, outcomeRefused, fmt.Errorf("the answer is %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, outcomeUnavailable, err
	}
	if len(body) > maxAnswerBytes {
		return nil, outcomeUnreadable, fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes)
	}
	return body, outcomeOK, nil
}

// answer is what a relay says of a round. It proves nothing. Members that are not used here may be there.
type answer struct {
	Round      uint64         `json:"round"`
	Signature  fairdraw.Bytes `json:"signature"`
	Randomness fairdraw.Bytes `json:"randomness"` // nil: not said
}

// verify returns the round if it is one of the chain, and the one of number; 0: any.
func (a answer) verify(chain beacon.Chain, number uint64) (beacon.Round, error) {
	if number != 0 && a.Round != number {
		return beacon.Round{}, fmt.Errorf("the answer is round %d instead of %d", a.Round, number)
	}
	round, err := chain.Verify(a.Round, a.Signature)
	if err == nil && a.Randomness != nil && !bytes.Equal(a.Randomness, round.Randomness[:]) {
		err = errors.New("the randomness is not the hash of the signature")
	}
	return round, err
}
