package stripesim

import (
	"crypto/rand"
	"encoding/json"
	"strings"
)

// Statuses of a PaymentIntent, in Stripe's words.
const (
	requiresMethod       = "requires_payment_method"
	requiresConfirmation = "requires_confirmation"
	requiresAction       = "requires_action"
	processing           = "processing"
	requiresCapture      = "requires_capture"
	canceled             = "canceled"
	succeeded            = "succeeded"
)

// Further statuses of charges, refunds and disputes.
const (
	pending       = "pending"
	failed        = "failed"
	needsResponse = "needs_response"
	inquiring     = "warning_needs_response"
	inquiryClosed = "warning_closed"
)

// intent is a PaymentIntent. Exported fields are in the journal.
type intent struct {
	head

	Secret       string
	Amount       int64
	Currency     string // lower case
	Status       string
	Capture      string   // capture_method
	CardCapture  string   // payment_method_options[card][capture_method]
	Types        []string // payment_method_types
	Automatic    bool     // automatic_payment_methods
	NoRedirects  bool     // automatic_payment_methods[allow_redirects]=never
	Method       string   // empty: none, or the last one was declined
	Last         string   // method of the last try; it decides how events are sent
	Charge       string   // of the last try
	Capturable   int64
	Received     int64
	Description  string
	Metadata     map[string]string
	Action       *action
	Failure      *failure
	CanceledAt   int64
	Cancellation string // reason

	Ends     int64    // Unix milliseconds when something happens by itself; 0: never
	Held     []string // events that are held back, to be sent in reverse
	Releases int64    // Unix milliseconds when they are sent at the latest
	Faults   int      // that befell its confirmations because of the method
}

// action is what the buyer has to do.
type action struct {
	Token     string
	URL       string // the sandbox's page
	ReturnURL string
	Outcome   string // empty while it is open
}

// failure is why the last try failed.
type failure struct {
	Decline decline
	Charge  string
	Method  string
}

// charge is one try to take the money.
type charge struct {
	head

	Intent        string
	Amount        int64
	Currency      string
	Method        string
	Status        string
	Captured      bool
	Received      int64 // captured
	Refunded      int64
	Decline       *decline
	Authenticated bool
	Dispute       string
	Disputed      bool  // a dispute that is no inquiry has begun
	Disputes      int64 // Unix milliseconds when a dispute begins; 0: never
	Metadata      map[string]string
	Description   string
	Movement      string // of the balance, when it was captured
}

// Refund gives back captured money, or releases what was held (Void).
type Refund struct {
	head

	Intent   string
	Charge   string
	Amount   int64
	Currency string
	Status   string
	Reason   string
	Failure  string
	Void     bool
	Becomes  string // status at Ends
	Ends     int64  // Unix milliseconds; 0: never
	Metadata map[string]string
	Movement string // of the balance; empty: nothing was captured
	Failed   string // the one that brings the money back
}

type dispute struct {
	head

	Intent   string
	Charge   string
	Amount   int64
	Currency string
	Status   string
	Reason   string
	Method   string

	Movements []*movement // of the balance
}

// event is what has happened to an object, as it was then.
type event struct {
	head

	Type    string
	Object  json.RawMessage
	Request string // id of the request
	Key     string // its idempotency key
	delivery
}

// delivery is how the sending of an event goes.
type delivery struct {
	Sendings int // how often it must still be sent with success
	Attempts int
	Next     int64 // Unix milliseconds of the next try
}

// entry is an object that the journal has.
type entry interface {
	id() string
	at() int64       // Unix seconds when it was made
	kind() string    // Stripe's name of it
	payment() string // id of the intent that it belongs to; empty: it is forgotten by its own age
	alarms() []int64 // Unix milliseconds when it changes without a request; 0: never
	render(now int64) object
}

// head is what all entries have.
type head struct {
	ID      string
	Created int64 // Unix seconds
}

func (h *head) id() string    { return h.ID }
func (h *head) at() int64     { return h.Created }
func (*head) payment() string { return "" }
func (*head) alarms() []int64 { return nil }

func (*intent) kind() string   { return "payment_intent" }
func (*charge) kind() string   { return "charge" }
func (*Refund) kind() string   { return "refund" }
func (*dispute) kind() string  { return "dispute" }
func (*event) kind() string    { return "event" }
func (*movement) kind() string { return "balance_transaction" }

func (i *intent) payment() string  { return i.ID }
func (c *charge) payment() string  { return c.Intent }
func (r *Refund) payment() string  { return r.Intent }
func (d *dispute) payment() string { return d.Intent }

func (i *intent) alarms() []int64 { return []int64{i.Ends, i.Releases} }
func (c *charge) alarms() []int64 { return []int64{c.Disputes} }
func (r *Refund) alarms() []int64 { return []int64{r.Ends} }

// blank returns a new object of a kind; nil if there is no such kind.
func blank(kind string) entry {
	for _, v := range []entry{new(intent), new(charge), new(Refund), new(dispute), new(event), new(movement)} {
		if v.kind() == kind {
			return v
		}
	}
	return nil
}

// over tells whether nothing happens to a payment any more.
func (i *intent) over() bool { return i.Status == succeeded || i.Status == canceled }

// newID returns an id such as pi_3Kx….
func newID(prefix string) string { return prefix + "_" + strings.ToLower(rand.Text()[:24]) }
