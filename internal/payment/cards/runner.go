package cards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
)

// Runner leads payments. It never locks a campaign, and no row is locked while the
// provider is called.
type Runner struct {
	db       postgres.Pool
	provider payprovider.Provider
	settings Settings
	logger   *slog.Logger
	metrics  *metrics
}

// NewRunner returns a Runner.
func NewRunner(db postgres.Pool, provider payprovider.Provider, settings Settings, logger *slog.Logger, registry prometheus.Registerer) *Runner {
	return &Runner{db: db, provider: provider, settings: settings, logger: logger, metrics: newMetrics(registry)}
}

// Outcome is how a run has ended.
type Outcome string

// The outcomes of runs.
const (
	Nothing  Outcome = "nothing"  // there is nothing to do, or the reference is older than the payment
	Waits    Outcome = "waits"    // it was given back, and is due again at some time
	Fenced   Outcome = "fenced"   // somebody else goes on with it
	Conclude Outcome = "conclude" // its end is known: a transaction of the sale decides what becomes of it
)

// Result is what a run has come to.
type Result struct {
	Outcome  Outcome
	Ref      payment.Ref // with the version after the run
	Phase    payment.Phase
	Announce bool   // its job says something new of itself
	Trace    string // the traceparent of the run; empty: none
}

// Job returns the job of the payment, for shards.
func (r Result) Job() job.Ref {
	return job.Ref{ID: r.Ref.JobID, CampaignID: r.Ref.CampaignID}.In(r.Trace)
}

// maxMoves bounds a run. The longest way, from the reservation to the capture with a
// fetch after every call, is shorter.
const maxMoves = 24

// Run claims a payment and leads it as far as it goes now. When ctx ends, no further
// call begins; one that is under way ends by itself, and what came of it is stored. An
// error is Postgres's: the payment is due again when the lease of the claim is over, so
// nothing is lost and the caller need not try again.
func (rn *Runner) Run(ctx context.Context, item lease.Item) (Result, error) {
	hit(item.ID, "", "claim")
	began := time.Now()
	p, ok, err := payment.Claim(ctx, rn.db, item, rn.settings.Lease)
	if err != nil {
		return Result{}, fmt.Errorf("payments.Run: %w", err)
	}
	if !ok {
		rn.metrics.runs.WithLabelValues(string(Nothing)).Inc()
		return Result{Outcome: Nothing}, nil
	}
	r := &run{Runner: rn, p: p, began: began, leased: began, awaiting: p.Phase.AwaitsBuyer(), waiting: p.WaitingFor != nil}
	if p.LeaseUntil != nil {
		r.claimedAt = p.LeaseUntil.Add(-rn.settings.Lease)
	}
	if p.AttemptAt != nil && p.AttemptAt.Equal(r.claimedAt) {
		rn.metrics.phases.WithLabelValues(string(payment.Creating)).Inc() // with the claim
	}
	r.hit("claimed")
	ctx, span := job.Continue(ctx, rn.db, p.JobID, "payment")
	outcome, err := r.lead(ctx)
	if errors.Is(err, lease.ErrFenced) {
		outcome, err = Fenced, nil
	}
	span.Set(tracing.Outcome, string(outcome))
	span.End(err)
	if err != nil {
		return Result{}, fmt.Errorf("payments.Run(%s): %w", item.ID, err)
	}
	rn.metrics.runs.WithLabelValues(string(outcome)).Inc()
	return Result{Outcome: outcome, Ref: r.p.Ref(), Phase: r.p.Phase, Announce: r.announce && outcome != Fenced, Trace: span.Traceparent()}, nil
}

// run is one run of a payment: what is known of it, and what the provider has said.
type run struct {
	*Runner
	p         payment.Payment // as it is stored
	began     time.Time       // of the claim, by the clock of this process
	claimedAt time.Time       // the same moment, by the clock of the database
	leased    time.Time       // when the lease was renewed last, by the clock of this process

	intent    payprovider.Intent   // as the provider has told last
	decline   *payprovider.Decline // why a call of this run was declined or refused
	refused   call                 // the last one that was refused
	confirmed bool                 // a confirmation was answered

	awaiting bool // the job shows an action
	waiting  bool // the job shows why it waits
	announce bool
}

// now is the present moment by the clock of the database, about.
func (r *run) now() time.Time { return r.claimedAt.Add(time.Since(r.began)) }

func (r *run) facts() facts {
	return facts{
		phase: r.p.Phase, over: r.p.Over, intent: r.p.IntentID != nil, oldKey: r.p.KeyAge > keyLasts, uncancellable: r.p.Uncancellable,
		another: r.p.Tries > 0, last: r.p.Tries >= payment.MostTries, confirmed: r.confirmed,
		status: r.intent.Status, page: r.intent.ActionURL != "", refused: r.refused,
		shown: r.p.Phase == payment.Action && r.p.NextAction != nil && *r.p.NextAction == r.intent.ActionURL,
	}
}

// errGoOn says that a move is done and another one follows.
var errGoOn = errors.New("go on")

// leadsToCall are the moves that are not begun when the worker shuts down.
var leadsToCall = map[move]bool{newKey: true, create: true, fetch: true, confirm: true, capture: true, cancel: true}

// lead makes one move after the other until the payment is given back, or its end is
// known.
func (r *run) lead(ctx context.Context) (Outcome, error) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxMoves*r.settings.CallTimeout)
	defer cancel()
	for range maxMoves {
		m, ending := next(r.facts())
		if ctx.Err() != nil && leadsToCall[m] {
			return r.giveBack(work, 0)
		}
		outcome, err := r.make(work, m, ending)
		if !errors.Is(err, errGoOn) {
			return outcome, err
		}
	}
	return r.unexpectedState(work, "it makes no progress")
}

// make makes a move. It returns errGoOn when another one follows.
func (r *run) make(ctx context.Context, m move, ending payment.Ending) (Outcome, error) {
	switch m {
	case newKey:
		return r.storeKey(ctx)
	case create, fetch, confirm, capture, cancel:
		return r.call(ctx, m)
	case awaitMethod:
		if many, err := payment.HasTooManyDeclines(ctx, r.db, r.p.PurchaseID, r.declinedByBank()); err != nil {
			return "", err
		} else if many { // no other card may come
			return r.giveUp(ctx, payment.Declined)
		}
		return r.forward(ctx, m)
	case show, slow, startCapture, keepMoney:
		return r.forward(ctx, m)
	case giveUp:
		return r.giveUp(ctx, ending)
	case end:
		return r.end(ctx, ending)
	case uncancellable:
		changed := r.p
		changed.Uncancellable = true
		return r.goOn(r.store(ctx, changed, payment.Always, r.settings.Lease, 0))
	case conclude:
		return Conclude, nil // the claim makes it due again, in case that nobody concludes
	case wait:
		return r.giveBack(ctx, r.pauseOf(&r.p))
	case release:
		return Nothing, r.sleep(ctx)
	}
	return r.unexpectedState(ctx, fmt.Sprintf("intent %s in status %q", text0(r.p.IntentID), r.intent.Status))
}

func (r *run) goOn(err error) (Outcome, error) {
	if err == nil {
		err = errGoOn
	}
	return "", err
}

// hit is a failpoint that concerns this payment.
func (r *run) hit(moment string) { hit(r.p.PurchaseID, r.p.PaymentMethod, moment) }

func text0(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func hit(purchaseID uuid.UUID, method, moment string) {
	failpoint.Hit("payments."+moment, func() []string { return []string{purchaseID.String(), method} })
}

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
