package reconciliation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment/balance"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

const (
	closedAfter = 48 * time.Hour  // a day is closed so long after its end: what is late has come by then
	lease       = 2 * time.Minute // longer than a run of a sweep
	mostAtOnce  = 2000            // transactions in hand: a span with more is left for a short one
	shortest    = time.Second     // span: what is made in it is taken whole
	dissolve    = 500             // differences that are looked at in one statement
	mostSaid    = 20              // differences of a day in the log; the list has all
)

// Report is what a run has done.
type Report struct {
	Days    int // that are done now
	Listed  int // transactions
	Foreign int // of these, about payments of others
	Found   int // differences
	Closed  int // differences that are none any more
}

// Reconciler compares days.
type Reconciler struct {
	db       postgres.Pool
	provider payprovider.Provider // nil: there is none
	keep     time.Duration        // of transactions: older days are not listed
	logger   *slog.Logger
}

// New returns a Reconciler; provider may be nil. Days older than keep are left out.
func New(db postgres.Pool, provider payprovider.Provider, keep time.Duration, logger *slog.Logger) *Reconciler {
	return &Reconciler{db: db, provider: provider, keep: keep, logger: logger}
}

// Run closes differences that are none any more, and compares one day, if there is one to
// be compared. more says that there may be another one. It does not fail because another
// scheduler was quicker.
func (r *Reconciler) Run(ctx context.Context) (done Report, more bool, err error) {
	for after := uuid.Nil; ; {
		closed, last, err := balance.Dissolve(ctx, r.db, after, dissolve)
		done.Closed += closed
		if err != nil {
			return done, false, fmt.Errorf("reconciliation.Run: %w", err)
		}
		if after = last; last == uuid.Nil {
			break
		}
	}
	if r.provider == nil {
		return done, false, nil
	}
	day, ok, err := balance.ClaimDay(ctx, r.db, closedAfter, r.keep, lease)
	if err != nil || !ok {
		return done, false, err
	}
	err = r.day(ctx, &day, &done)
	switch {
	case errors.Is(err, balance.ErrFenced):
		return done, false, nil
	case err != nil:
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if late := balance.GiveBack(back, r.db, day); late != nil {
			r.logger.Debug("a day waits for its lease", "day", day.Day.Format(time.DateOnly), "error", late)
		}
		return done, false, fmt.Errorf("reconciliation.Run(%s): %w", day.Day.Format(time.DateOnly), err)
	}
	return done, true, nil
}

// day lists what is left of a day, compares it, and ends it.
func (r *Reconciler) day(ctx context.Context, day *balance.Day, done *Report) error {
	err := inSpans(ctx, r.provider, day.Until, day.End(), func(to time.Time, all []payprovider.BalanceTransaction) error {
		stored, err := balance.Store(ctx, r.db, day, to, lease, all)
		if err != nil {
			return err
		}
		done.Listed += len(all)
		done.Foreign += len(all) - stored
		failpoint.Hit("reconciliation.stored", nil)
		return nil
	})
	if err != nil {
		return err
	}
	var fresh []balance.Difference
	err = postgres.InTx(ctx, r.db, func(tx pgx.Tx) error {
		found, err := balance.Compare(ctx, tx, *day)
		if err != nil {
			return err
		}
		if fresh, err = balance.Note(ctx, tx, found); err != nil {
			return err
		}
		return balance.Done(ctx, tx, *day)
	})
	if err != nil {
		return err
	}
	done.Days++
	done.Found += len(fresh)
	r.say(*day, fresh)
	return nil
}

// errMany ends the listing of a span with too many transactions.
var errMany = errors.New("reconciliation: more transactions than are taken at once")

// inSpans lists what was made in [from, to), span by span, the oldest first. store stores a
// span that ends at to.
func inSpans(ctx context.Context, provider payprovider.Provider, from, to time.Time, store func(to time.Time, all []payprovider.BalanceTransaction) error) error {
	for span := to.Sub(from); from.Before(to); {
		end := from.Add(span)
		if end.After(to) {
			end = to
		}
		all, err := list(ctx, provider, from, end)
		if errors.Is(err, errMany) {
			span = shortest // halving would cost a list each time, and a run that is cut off starts with the whole day again
			continue
		}
		if err != nil {
			return err
		}
		if err := store(end, all); err != nil {
			return err
		}
		from = end
		if len(all) <= mostAtOnce/4 {
			span *= 2
		}
	}
	return nil
}

// list returns the transactions of a span, the oldest first. A single second is taken whole.
func list(ctx context.Context, provider payprovider.Provider, from, to time.Time) (all []payprovider.BalanceTransaction, err error) {
	most := mostAtOnce
	if to.Sub(from) <= shortest {
		most *= 100
	}
	err = provider.ListBalanceTransactions(ctx, from, to, func(t payprovider.BalanceTransaction) error {
		if len(all) == most {
			return errMany
		}
		all = append(all, t)
		return nil
	})
	slices.SortStableFunc(all, func(a, b payprovider.BalanceTransaction) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return slices.CompactFunc(all, func(a, b payprovider.BalanceTransaction) bool { return a.ID == b.ID }), err
}

func (r *Reconciler) say(day balance.Day, fresh []balance.Difference) {
	for _, d := range fresh[:min(len(fresh), mostSaid)] {
		say(r.logger, d, "day", day.Day.Format(time.DateOnly))
	}
	if len(fresh) > mostSaid {
		r.logger.Error("more differences than are logged: see GET /v1/payment-differences", "day", day.Day.Format(time.DateOnly), "differences", len(fresh))
	}
}

// say logs a difference that is new.
func say(logger *slog.Logger, d balance.Difference, more ...any) {
	args := []any{"difference", d.ID, "kind", d.Kind, "object", d.ObjectID, "purchase", d.PurchaseID, "detail", d.Detail}
	for name, value := range map[string]*int64{"here": d.HereAmount, "there": d.ThereAmount} {
		if value != nil {
			args = append(args, name, *value)
		}
	}
	for _, currency := range []*string{d.ThereCurrency, d.HereCurrency} {
		if currency != nil {
			args = append(args, "currency", *currency)
			break
		}
	}
	logger.Error("the provider's books and ours differ", append(args, more...)...)
}

// Mark returns the provider with the id of our installation in the metadata of all that it
// makes. The id is read once; while it cannot be read, nothing is made, and the calls are
// unavailable.
func Mark(provider payprovider.Provider, db postgres.DB) payprovider.Provider {
	return &marked{Provider: provider, db: db}
}

type marked struct {
	payprovider.Provider
	db postgres.DB

	mu sync.Mutex
	id string // empty: not read yet
}

// CreateIntent implements payprovider.Provider.
func (m *marked) CreateIntent(ctx context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	metadata, err := m.mark(ctx, "create", n.Metadata)
	if err != nil {
		return payprovider.Intent{}, err
	}
	n.Metadata = metadata
	return m.Provider.CreateIntent(ctx, n)
}

// CreateRefund implements payprovider.Provider.
func (m *marked) CreateRefund(ctx context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	metadata, err := m.mark(ctx, "refund", n.Metadata)
	if err != nil {
		return payprovider.Refund{}, err
	}
	n.Metadata = metadata
	return m.Provider.CreateRefund(ctx, n)
}

func (m *marked) mark(ctx context.Context, call string, metadata map[string]string) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		id, err := balance.Installation(ctx, m.db)
		if err != nil {
			return nil, &payprovider.Error{Kind: payprovider.KindUnavailable, Call: call, Message: "the id of this installation cannot be read", Err: err}
		}
		m.id = id.String()
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	metadata[payprovider.InstallationKey] = m.id
	return metadata, nil
}

// Service carries out what operators decide about differences.
type Service struct {
	db     postgres.Beginner
	render func(balance.Difference) any
}

// NewService returns a Service; db is a pool, or a view of it for transactions that may wait
// for locks. render makes the answer's body from a difference.
func NewService(db postgres.Beginner, render func(balance.Difference) any) *Service {
	return &Service{db: db, render: render}
}

// Explain notes why a difference is none. One that is not open is a state-conflict Error,
// and an unknown one a not-found Error.
func (s *Service) Explain(ctx context.Context, r job.Request, id uuid.UUID, by, reason string) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (balance.Difference, error) { return balance.Lock(ctx, tx, id) }
	_, accepted, err := job.Edit(ctx, s.db, r, lock, func(b *pgx.Batch, known balance.Difference) error {
		if state := known.State(); state != balance.Open {
			return fault.New(fault.StateConflict, "the difference is %s already", state)
		}
		balance.QueueExplain(b, id, by, reason)
		return nil
	}, s.render)
	return accepted, err
}
