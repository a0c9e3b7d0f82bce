package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"triprize.example/client"
)

// ErrUnverified means that a request is not from who has the secret, or that it is too old.
var ErrUnverified = errors.New("webhook: not verified")

const (
	defaultTolerance = 5 * time.Minute
	maxSignatures    = 16 // of a request: more would only be work
	prefix           = "whsec_"
)

// Verifier knows the secrets of an endpoint. Many goroutines may use it at once.
type Verifier struct {
	secrets   [][]byte
	tolerance time.Duration
}

// New returns a Verifier. Give it all secrets (whsec_…) that are in use: while a secret is
// rotated, two.
func New(secrets ...string) (*Verifier, error) {
	if len(secrets) == 0 {
		return nil, errors.New("webhook: no secret")
	}
	v := &Verifier{tolerance: defaultTolerance}
	for i, secret := range secrets {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, prefix))
		if err != nil || len(raw) == 0 { // the secret itself is not for logs
			return nil, fmt.Errorf("webhook: secret %d of %d is not whsec_ and base64", i+1, len(secrets))
		}
		v.secrets = append(v.secrets, raw)
	}
	return v, nil
}

// Tolerate sets how far the clock of the sender and this one may be apart, 5 minutes by
// default. Call it before the first use.
func (v *Verifier) Tolerate(d time.Duration) { v.tolerance = d }

// Verify checks who has sent a webhook, and returns its event. The body has to be as it came.
// The error wraps ErrUnverified, or says what is wrong with the event.
func (v *Verifier) Verify(header http.Header, body []byte) (Event, error) {
	id, at, signatures := header.Get("webhook-id"), header.Get("webhook-timestamp"), header.Get("webhook-signature")
	if id == "" || at == "" || signatures == "" {
		return Event{}, fmt.Errorf("%w: webhook-id, webhook-timestamp or webhook-signature is missing", ErrUnverified)
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > v.tolerance {
		return Event{}, fmt.Errorf("%w: webhook-timestamp is too far from now", ErrUnverified)
	}
	if !v.signed(id+"."+at+".", body, signatures) {
		return Event{}, fmt.Errorf("%w: no signature is of a secret that is known", ErrUnverified)
	}
	e := Event{ID: id}
	if err := json.Unmarshal(body, &e); err != nil || e.Type == "" {
		return Event{}, errors.Join(errors.New("webhook: the body is no event: type, timestamp, data"), err)
	}
	return e, nil
}

// signed compares in constant time, and every signature with every secret.
func (v *Verifier) signed(head string, body []byte, header string) (ok bool) {
	var given [][]byte
	for _, one := range strings.Fields(header) {
		text, current := strings.CutPrefix(one, "v1,")
		raw, err := base64.StdEncoding.DecodeString(text)
		if current && err == nil && len(given) < maxSignatures {
			given = append(given, raw)
		}
	}
	for _, secret := range v.secrets {
		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte(head)) // a hash never fails
		_, _ = mac.Write(body)
		want := mac.Sum(nil)
		for _, signature := range given {
			ok = hmac.Equal(signature, want) || ok
		}
	}
	return ok
}

// Event is one webhook. Data is the resource as GET shows it, when the event was first sent:
// it may be newer than the event, never older.
type Event struct {
	ID        string          `json:"-"` // the same in every attempt and replay
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // when it happened
	Data      json.RawMessage `json:"data"`
}

// Challenge returns the text that the answer has to be, for webhook-endpoint.verification: by it
// an address says that it wants events. ok is false for all other events.
func (e Event) Challenge() (challenge string, ok bool) {
	data, err := dataOf[struct {
		Challenge string `json:"challenge"`
	}](e, "webhook-endpoint.verification")
	return data.Challenge, err == nil && data.Challenge != ""
}

// Purchase returns the Data of purchase.… and dispute.… events.
func (e Event) Purchase() (client.Purchase, error) {
	return dataOf[client.Purchase](e, "purchase.", "dispute.")
}

// Refund returns the Data of refund.… events.
func (e Event) Refund() (client.Refund, error) { return dataOf[client.Refund](e, "refund.") }

// Hold returns the Data of hold.… events.
func (e Event) Hold() (client.Hold, error) { return dataOf[client.Hold](e, "hold.") }

// Campaign returns the Data of campaign.… events.
func (e Event) Campaign() (client.Campaign, error) { return dataOf[client.Campaign](e, "campaign.") }

// Job returns the Data of job.… events.
func (e Event) Job() (client.Job, error) { return dataOf[client.Job](e, "job.") }

func dataOf[T any](e Event, of ...string) (T, error) {
	var data, none T
	if !slices.ContainsFunc(of, func(family string) bool { return strings.HasPrefix(e.Type, family) }) {
		return none, fmt.Errorf("webhook: the event %s is no %s…", e.Type, of[0])
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return none, fmt.Errorf("webhook: data of event %s: %w", e.ID, err)
	}
	return data, nil
}
