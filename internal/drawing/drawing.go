// Package drawing draws the prizes of a campaign whose sale is over, exactly once, and proves it.
//
//	claim ─▶ freeze ─▶ await the round ─▶ choose ─▶ record
//	           │              │
//	           └──────────────┴── wait: release the lock, try again later
//
// A [Drawer] does each step whose result is not stored yet:
//
//   - claim: take the execution lock of the campaign and increase its version. If another
//     worker has it, the job is tried again later ([ErrBusy]). A dead worker loses it
//     after the lease.
//   - freeze: compare the secret with the commitment, read the sold list and store the
//     freeze record. With a beacon the record names the round and has the secret.
//   - await: get the round from a relay (package drand), verify and store it. Nothing
//     weaker replaces it.
//   - choose: the list must still have the frozen root; package fairdraw selects the
//     winners.
//   - record: one transaction ends the campaign, inserts the draw, sets the prizes and
//     completes the job.
//
// The first statement of every transaction is the fence: it fails when the lock is lost.
// The primary keys of freezes and draws are a second guard.
//
// A draw that waits is a [Snoozed]: the campaign stays drawing, and no lock, slot or
// connection is held. Only the database's clock says what is due.
//
// The records, with which anybody can check a draw:
//
//	publication   draw_secrets   the secret of the campaign, encrypted
//	              beacon_chains  the chain of public randomness that the rules name
//	freeze        freezes        the freeze record; freeze_subtrees: its list, with nodes of its tree
//	the round     beacon_rounds  verified rounds
//	draw          draws          the result: one row per campaign, by its primary key
//
// Triggers refuse every change, except that draw_secrets may be encrypted anew, and a draw
// that is weaker than its rules. draw_waits says what a draw waits for; it is for people
// and decides nothing. The commitment itself is in package campaign.
//
// [Proofs] makes the documents from these rows for every reader anew. The rows never
// change, so the documents are the same bytes for ever. The root is computed again from
// the lines that are sent: a list that is not the frozen one ends in [ErrNotFrozenList],
// and the document has no end. A slow reader holds no connection.
package drawing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
)

// ErrBusy means that another worker has the execution lock: try again later.
var ErrBusy = errors.New("drawing: another worker is drawing this campaign")

// Beacon asks relays for rounds of a chain. Every round that it returns is verified; an
// error says that it has none.
type Beacon interface {
	Round(ctx context.Context, chain beacon.Chain, number uint64) (beacon.Round, error)
	Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error)
}

// DrawerOptions are what a Drawer may have beside its database and keys. The zero value has no
// beacon: draws whose rules need one wait, those of others go on.
type DrawerOptions struct {
	Beacon   Beacon
	AtOnce   int                   // how many questions to relays may be under way; 0: one
	Registry prometheus.Registerer // nil: nothing is counted
	Holder   string                // the name of the process, in the rows that it claims

	// EndSale ends the sale of a campaign whose end has come and whose rules say that what
	// is sold by then is drawn, in a transaction of its own. It does nothing about any
	// other campaign. Nil: jobs end no sales.
	EndSale func(ctx context.Context, campaignID uuid.UUID) (ended bool, err error)
}

// Drawer draws campaigns.
type Drawer struct {
	db      postgres.Pool
	keys    keyring.Keyring
	lease   time.Duration
	limit   time.Duration
	options DrawerOptions
	metrics *metrics
	logger  *slog.Logger

	questions *questions
}

// RowWait is how long an attempt should wait for a campaign that is locked elsewhere:
// the other draws of a process go on.
const RowWait = 100 * time.Millisecond

// The times of an attempt to draw.
const (
	Lease          = 10 * time.Second // another worker may take over a draw whose worker is silent for this long
	attemptTimeout = time.Minute      // one attempt, from claim to result
)

// NewDrawer returns a Drawer; db is a pool, or a view of it for transactions that may
// wait for locks; keys decrypt the campaigns' secrets.
func NewDrawer(db postgres.Pool, keys keyring.Keyring, settings config.Draw, options DrawerOptions, logger *slog.Logger) *Drawer {
	return &Drawer{db: db, keys: keys, lease: cmp.Or(settings.Lease, Lease), limit: cmp.Or(settings.Timeout, attemptTimeout), options: options, metrics: newMetrics(options.Registry), logger: logger, questions: newQuestions(options.AtOnce)}
}

// Run does the draw of a job's campaign as far as it goes now, and completes the job at the
// end. When the campaign is drawn already, the job gets the existing result; when its sale
// goes on, the job fails. ErrBusy, campaign.ErrFenced (another worker took over) and a
// *Snoozed leave the job queued. job.ErrFinal means that the job is final already.
func (d *Drawer) Run(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	began := time.Now()
	outcome, err := d.run(limited, ref)
	name, cause := endOf(outcome, err)
	d.metrics.ended(name, cause, began)
	if name == failed && ctx.Err() == nil && !postgres.IsTransient(err) { // nor a worker that shuts down
		note := func(tx pgx.Tx) error { return addFault(ctx, tx, ref.CampaignID, longestRetry) }
		if err := postgres.InTx(ctx, d.db, note); err != nil {
			d.logger.Warn("a failed attempt at a draw is not noted", "campaign", ref.CampaignID, "error", err)
		}
	}
	return outcome, err
}

func (d *Drawer) run(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	known, err := job.Get(ctx, d.db, ref.ID)
	if err != nil {
		return job.Outcome{}, err
	}
	if known.State.Final() { // a late delivery
		return job.Outcome{}, job.ErrFinal
	}
	logger := d.logger.With(append([]any{"campaign", ref.CampaignID, "job", ref.ID}, known.Attrs()...)...)
	var execution campaign.Execution
	var claimed bool
	asked := time.Now()
	err = postgres.InTx(ctx, d.db, func(tx pgx.Tx) (err error) {
		execution, claimed, err = campaign.Claim(ctx, tx, ref.CampaignID, d.options.Holder, d.lease)
		return err
	})
	if err != nil {
		return job.Outcome{}, err
	}
	if claimed {
		logger.Info("execution lock taken", slog.String("holder", d.options.Holder), slog.Int64("version", execution.Version), telemetry.Took(time.Since(asked)))
		return d.execute(ctx, ref, execution, logger)
	}
	return d.completeUnclaimed(ctx, ref)
}

// completeUnclaimed completes a job whose campaign could not be claimed.
func (d *Drawer) completeUnclaimed(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	result, drawn, err := get(ctx, d.db, ref.CampaignID)
	if err != nil {
		return job.Outcome{}, err
	}
	outcome := job.Outcome{ID: ref.ID}
	if drawn {
		outcome.Result, err = json.Marshal(result)
	} else if refusal, failure := d.refusal(ctx, ref.CampaignID); failure != nil {
		err = failure
	} else {
		outcome = job.Refused(ref.ID, refusal)
	}
	if err != nil {
		return job.Outcome{}, err
	}
	err = postgres.InTx(ctx, d.db, func(tx pgx.Tx) error { return job.Complete(ctx, tx, &outcome) })
	return outcome, err
}

// refusal returns why a campaign cannot be drawn, or ErrBusy.
func (d *Drawer) refusal(ctx context.Context, id uuid.UUID) (refusal *fault.Error, err error) {
	c, err := campaign.Get(ctx, d.db, id)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return fault.From(err), nil
	case err != nil:
		return nil, err
	case c.State == campaign.Drawing, c.State == campaign.Completed: // completed after the read of a result
		return nil, ErrBusy
	case c.State == campaign.Cancelled:
		return fault.New(fault.CampaignNotActive, "the campaign is cancelled"), nil
	case c.State == campaign.Active && c.DrawsAt != nil && d.options.EndSale != nil:
		ended, err := d.options.EndSale(ctx, id)
		if err != nil {
			return nil, err
		}
		if ended {
			return nil, ErrBusy // the next attempt draws it
		}
	}
	return notSoldOut(c), nil
}

// notSoldOut says what a campaign on sale waits for before it is drawn.
func notSoldOut(c campaign.Campaign) *fault.Error {
	if c.DrawsAt == nil {
		return fault.New(fault.NotSoldOut, "%d of %d positions are sold", c.Counts.Sold, c.Counts.Total)
	}
	return fault.New(fault.NotSoldOut, "%d of %d positions are sold; the draw begins when all are sold, or after the sale ends at %s and the %d reserved positions are paid or released",
		c.Counts.Sold, c.Counts.Total, c.DrawsAt.UTC().Format(time.RFC3339), c.Counts.Reserved)
}

// Snoozed is why a draw cannot go on now. It is no failure: the campaign is drawing, and
// nothing is held meanwhile.
type Snoozed struct {
	job.Blocked               // by the database's clock
	After       time.Duration // from now until the retry, for clocks that are wrong

	cause string // see metrics
}

// Error returns the reason.
func (w *Snoozed) Error() string {
	return fmt.Sprintf("drawing: waiting until %s: %s", w.RetryAt.UTC().Format(time.RFC3339), w.Reason)
}

// The times between two attempts to get what should be there.
const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
)

func snoozed(cause, reason string, now time.Time, after time.Duration) *Snoozed {
	return &Snoozed{Blocked: job.Blocked{Reason: reason, RetryAt: now.Add(after)}, After: after, cause: cause}
}

// retry returns how long to wait for what was due at a time: half as long as it is late,
// within the bounds. So a worker that knows of no earlier attempt waits as long as one
// that has made them all.
func retry(due, now time.Time) time.Duration { return clamp(now.Sub(due)/2, firstRetry, longestRetry) }

func clamp(d, least, greatest time.Duration) time.Duration { return min(max(d, least), greatest) }
