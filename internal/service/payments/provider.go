package payments

import (
	"errors"
	"fmt"
	"time"

	"triprize/internal/domain/payprovider"
)

// Recheck is how often a payment that is not final is fetched from the provider at least.
const Recheck = time.Minute

// Settings are those of the runner.
type Settings struct {
	Lease       time.Duration // how long a claim lasts, by the database's clock
	CallTimeout time.Duration // bounds a call of the provider; less than Lease
	Recheck     time.Duration // a payment that is not final is looked at this often at least
	ReturnURL   string        // where an authentication ends, if the purchase does not say
	Livemode    bool          // what everything from the provider must say
}

// call names a call of the provider, for failpoints, metrics and errors.
type call string

const (
	callCreate  call = "create"
	callFetch   call = "fetch"
	callConfirm call = "confirm"
	callCapture call = "capture"
	callCancel  call = "cancel"
)

// keyLasts is how long the provider knows a key: a little less than the 24 hours that
// it promises.
const keyLasts = 23 * time.Hour

// The keys of calls. Those of an existing intent count attempts in vain: an error that
// the provider has stored under a key would come back for ever. A second call under
// another key is harmless, since the intent's own state allows each of them once.

func (r *run) createKey() string { return fmt.Sprintf("pi:%s:%d", r.p.PurchaseID, r.p.Attempt) }

func (r *run) confirmKey() string {
	key := fmt.Sprintf("confirm:%s:%d", r.p.PurchaseID, r.p.Attempt)
	if r.p.Tries > 0 {
		key += fmt.Sprintf(":method-%d", r.p.Tries)
	}
	return r.again(key)
}

func (r *run) captureKey() string { return r.again("capture:" + r.p.PurchaseID.String()) }

// cancelKey names the status that the intent was found in: a call refused in one may
// succeed in another.
func (r *run) cancelKey() string {
	key := "cancel:" + r.p.PurchaseID.String()
	if r.intent.Status != "" {
		key += ":" + string(r.intent.Status)
	}
	return r.again(key)
}

func (r *run) again(key string) string {
	if r.p.Faults == 0 {
		return key
	}
	return fmt.Sprintf("%s:%d", key, r.p.Faults)
}

// newIntent is what an intent is made from. The same payment must always give the same:
// the provider refuses a key with other parameters.
func (r *run) newIntent() payprovider.NewIntent {
	return payprovider.NewIntent{
		Key: r.createKey(), Amount: r.p.Amount, Currency: r.p.Currency, PaymentMethod: r.p.PaymentMethod,
		Description: "purchase " + r.p.PurchaseID.String(),
		Metadata:    map[string]string{purchaseField: r.p.PurchaseID.String(), campaignField: r.p.CampaignID.String()},
	}
}

func (r *run) returnURL() string {
	if r.p.ReturnURL != nil {
		return *r.p.ReturnURL
	}
	return r.settings.ReturnURL
}

// errNotOurs means that an answer is not about our payment.
var errNotOurs = errors.New("what the provider has sent is not our payment")

// check compares what has come back with what we have.
func (r *run) check(in payprovider.Intent) error {
	p := r.p
	switch {
	case in.ID == "" || p.IntentID != nil && *p.IntentID != in.ID:
		return fmt.Errorf("%w: it is intent %q", errNotOurs, in.ID)
	case in.Livemode != r.settings.Livemode:
		return fmt.Errorf("%w: %s has livemode %t", errNotOurs, in.ID, in.Livemode)
	case in.Amount != p.Amount || in.Currency != p.Currency:
		return fmt.Errorf("%w: %s is over %d %s, and ours over %d %s", errNotOurs, in.ID, in.Amount, in.Currency, p.Amount, p.Currency)
	case in.Metadata[purchaseField] != p.PurchaseID.String():
		return fmt.Errorf("%w: %s belongs to purchase %q", errNotOurs, in.ID, in.Metadata[purchaseField])
	case in.Status == payprovider.Succeeded && in.Received != p.Amount:
		return fmt.Errorf("%w: %s has captured %d of %d %s", errNotOurs, in.ID, in.Received, p.Amount, p.Currency)
	}
	return nil
}
