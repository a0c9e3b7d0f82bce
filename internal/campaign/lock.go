package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// Lock locks the row of a campaign for the transaction and waits when another
// transaction has it. The statement reads nothing else: other data that a statement
// reads can be older than its wait, so callers read in a later one. It returns a
// not-found Error when the campaign does not exist.
func Lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := LockDrawing(ctx, tx, id)
	return err
}

// LockDrawing is Lock, and reports whether the campaign is drawing.
func LockDrawing(ctx context.Context, tx pgx.Tx, id uuid.UUID) (drawing bool, err error) {
	err = tx.QueryRow(ctx, `SELECT state = 'drawing' FROM campaigns WHERE id = $1 FOR NO KEY UPDATE`, id).Scan(&drawing)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, NotFound(id)
	}
	return drawing, fault.At(err, "campaign.Lock(%s)", id)
}

// QueueLock locks the rows of several campaigns, by ascending id, and calls each
// for every row it has locked: all of them, or with postgres.SkipLocked those
// that were free. Statements queued after it see what was committed before the
// locks were granted.
func QueueLock(b *pgx.Batch, ids []uuid.UUID, mode postgres.LockMode, each func(id uuid.UUID)) {
	var id uuid.UUID
	b.Queue(`SELECT id FROM campaigns WHERE id = ANY($1) ORDER BY id`+mode.SQL(), ids).Query(postgres.Each(func() { each(id) }, &id))
}

// QueueMissing calls each for those of the ids that name no campaign.
func QueueMissing(b *pgx.Batch, ids []uuid.UUID, each func(id uuid.UUID)) {
	var id uuid.UUID
	b.Queue(`SELECT i.id FROM unnest($1::uuid[]) AS i (id) WHERE NOT EXISTS (SELECT FROM campaigns c WHERE c.id = i.id)`, ids).Query(postgres.Each(func() { each(id) }, &id))
}

// Snapshot is what decisions on purchases and holds need to know of a campaign.
type Snapshot struct {
	ID        uuid.UUID
	State     State
	Paused    bool
	Open      bool       // it is between the start and the end of the sale
	DrawsAt   *time.Time // the end of the sale, if what is sold by then is drawn
	Ended     bool       // DrawsAt has come: nothing new is sold, held or reserved, ever
	SaleTerms            // without the shape until TermsCache.Fill has set it
	Currency  string
	Counts    Counts
	Board     int64 // the board_version; a transaction that changes positions makes it one more, see Changes
}

// CheckOnSale returns nil while positions can be sold and held, or an Error that
// says why they cannot.
func (s Snapshot) CheckOnSale() error {
	switch {
	case s.State != Active && s.Counts.Sold == s.Counts.Total:
		return fault.New(fault.SoldOut, "all %d positions are sold", s.Counts.Total)
	case s.State != Active:
		return fault.New(fault.CampaignNotActive, "the campaign is %s", s.State)
	case s.Ended:
		return fault.New(fault.SaleNotOpen, "the sale ended at %s; the positions sold by then are drawn", s.DrawsAt.UTC().Format(time.RFC3339))
	case s.Paused:
		return fault.New(fault.CampaignPaused, "the operator has paused the sale")
	case !s.Open:
		return fault.New(fault.SaleNotOpen, "the sale has not begun or is over")
	}
	return nil
}

// CheckBlocking returns nil while operators can block and unblock positions, or an Error that
// says why they cannot. Any other campaign is drawn when every position is sold, which one
// with a blocked position never is.
func (s Snapshot) CheckBlocking() error {
	switch {
	case s.State == Pending:
		return fault.New(fault.StateConflict, "the campaign has no positions yet; publish it with a future sale_starts_at, and block positions before the sale begins")
	case s.State != Active:
		return fault.New(fault.StateConflict, "the campaign is %s", s.State)
	case s.DrawsAt == nil:
		return fault.New(fault.StateConflict, "only a campaign with policies.unsold draw can have blocked positions; this one is drawn when every position is sold")
	case s.Ended:
		return s.CheckOnSale()
	}
	return nil
}

// Refusals says why campaigns never sell again; one that may has no entry.
func Refusals(ctx context.Context, db postgres.DB, campaigns []uuid.UUID) (map[uuid.UUID]error, error) {
	statuses, refusals := make(map[uuid.UUID]*Snapshot, len(campaigns)), make(map[uuid.UUID]error)
	var b pgx.Batch
	QueueSnapshots(&b, campaigns, statuses)
	err := db.SendBatch(ctx, &b).Close()
	for id, status := range statuses {
		if status.State.Closed() {
			refusals[id] = status.CheckOnSale()
		}
	}
	return refusals, err
}

// QueueSnapshots reads campaigns into a map. It leaves out those that do not exist.
func QueueSnapshots(b *pgx.Batch, ids []uuid.UUID, into map[uuid.UUID]*Snapshot) {
	var s Snapshot
	b.Queue(`
		SELECT id, state, paused_at IS NOT NULL,
		       coalesce(sale_starts_at <= t.now, true) AND coalesce(t.now < sale_ends_at, true),
		       draws_at, coalesce(draws_at <= t.now, false),
		       currency, purchase_limit, positions_total, positions_reserved, positions_sold, positions_blocked, board_version
		FROM campaigns, (SELECT clock_timestamp() AS now) t
		WHERE id = ANY($1)`, ids).Query(postgres.Each(func() { into[s.ID] = new(s) }, &s.ID, &s.State, &s.Paused, &s.Open, &s.DrawsAt, &s.Ended, &s.Currency, &s.PurchaseLimit,
		&s.Counts.Total, &s.Counts.Reserved, &s.Counts.Sold, &s.Counts.Blocked, &s.Board))
}

// Locker is a session of Postgres that has locked the row of a campaign.
type Locker struct {
	PID         int    // of its server process: pg_terminate_backend ends it; 0: unknown
	Application string // its application_name; may be empty
}

// String names the session for people.
func (l Locker) String() string {
	if l.PID == 0 {
		return "an unknown session of Postgres"
	}
	return fmt.Sprintf("the session of Postgres with pid %d and application_name %q", l.PID, l.Application)
}

// FindLocker returns the session that has locked the row of a campaign. It is unknown when
// the row is free, when a prepared transaction has locked it, and when several sessions
// share a lock. It waits for nothing.
//
// The lock of a row is not in pg_locks: the row itself names the transaction (xmax), and
// every transaction has a lock on its own id.
func FindLocker(ctx context.Context, db postgres.DB, id uuid.UUID) (l Locker, err error) {
	err = db.QueryRow(ctx, `
		SELECT l.pid, coalesce(a.application_name, '') FROM campaigns c
		JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted AND l.pid IS NOT NULL
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE c.id = $1 AND l.mode = 'ExclusiveLock' LIMIT 1`, id).Scan(&l.PID, &l.Application)
	_, err = postgres.Found(err)
	return l, fault.At(err, "campaign.FindLocker(%s)", id)
}

// Changes is what a transaction adds to the counters of campaigns. A campaign whose
// positions change while its counters stay the same is in it too, with zeros.
type Changes map[uuid.UUID]Counts

// Add adds to the change of a campaign.
func (c Changes) Add(id uuid.UUID, change Counts) {
	now := c[id]
	c[id] = Counts{Reserved: now.Reserved + change.Reserved, Sold: now.Sold + change.Sold, Blocked: now.Blocked + change.Blocked, Board: max(now.Board, change.Board)}
}

// Queue adds the changes to the counters, in one statement. The statement fails
// with postgres.ErrRows when a campaign is no longer active, or its board has another version. Call Queue under
// the campaigns' locks, once in every transaction that changes positions.
func (c Changes) Queue(b *pgx.Batch) { c.queue(b, `c.state = 'active'`, "active campaigns") }

// QueueBack is Queue for transactions that free positions, which goes on in cancelled
// campaigns. There a change must make no counter larger, so nothing is sold, held or
// reserved in them.
func (c Changes) QueueBack(b *pgx.Batch) {
	c.queue(b, `(c.state = 'active' OR c.state = 'cancelled' AND d.reserved <= 0 AND d.sold <= 0)`, "campaigns that may be changed")
}

func (c Changes) queue(b *pgx.Batch, where, what string) {
	if len(c) == 0 {
		return
	}
	ids := slices.SortedFunc(maps.Keys(c), uuidv7.Compare)
	reserved, sold, blocked, boards := make([]int, len(ids)), make([]int, len(ids)), make([]int, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		reserved[i], sold[i], blocked[i], boards[i] = c[id].Reserved, c[id].Sold, c[id].Blocked, c[id].Board
	}
	b.Queue(`
		UPDATE campaigns c
		SET positions_reserved = c.positions_reserved + d.reserved, positions_sold = c.positions_sold + d.sold,
		    positions_blocked = c.positions_blocked + d.blocked, board_version = c.board_version + 1
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::bigint[]) AS d (id, reserved, sold, blocked, board)
		WHERE c.id = d.id AND d.board IN (0, c.board_version + 1) AND `+where, ids, reserved, sold, blocked, boards).Exec(postgres.Exactly(len(ids), what))
}
