package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Wanted is what the commands of a transaction are about.
type Wanted struct {
	Wallets        []uuid.UUID
	Authorizations []uuid.UUID // to be captured or voided
	References     []Reference // that callers gave
}

// stateSQL reads wallets $1 uuid[] with what they start from: the last snapshot
// and the sum of the events after it, of which there are fewer than
// SnapshotEvery; the limit tells the planner so, which would read all events of an
// old wallet otherwise. A wallet that holds nothing has no active authorization, and
// spares the count.
const stateSQL = `
	SELECT w.id, w.owner_id, w.currency, w.balance, w.held, w.version, w.created_at,
	       coalesce(s.version, 0), e.events, e.last, coalesce(s.balance, 0) + e.balance, coalesce(s.held, 0) + e.held,
	       CASE WHEN w.held = 0 THEN 0
	            ELSE (SELECT count(*) FROM authorizations a WHERE a.wallet_id = w.id AND a.state = 'active') END
	FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT * FROM wallets WHERE id = i.id) w
	LEFT JOIN LATERAL (
		SELECT version, balance, held FROM wallet_snapshots WHERE wallet_id = w.id
		ORDER BY version DESC LIMIT 1) s ON true
	CROSS JOIN LATERAL (
		SELECT count(*) AS events, coalesce(max(version), 0) AS last,
		       coalesce(sum(delta_balance), 0)::bigint AS balance, coalesce(sum(delta_held), 0)::bigint AS held
		FROM (SELECT version, delta_balance, delta_held FROM wallet_events WHERE wallet_id = w.id AND version > coalesce(s.version, 0)
		      ORDER BY version LIMIT 1000) l) e`

// authorizationsSQL reads the authorizations of wallets $1 uuid[] whose time is
// over, and those of $2 uuid[] that are to be captured or voided. The clock is
// asked in a subquery, once: then it is a condition that an index can serve.
const authorizationsSQL = `
	SELECT a.* FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (
		SELECT ` + authorizationColumns + ` FROM authorizations
		WHERE wallet_id = i.id AND state = 'active' AND expires_at <= (SELECT clock_timestamp())) a
	UNION
	SELECT a.* FROM unnest($2::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT ` + authorizationColumns + ` FROM authorizations WHERE id = i.id) a`

// takenSQL returns those of the references ($1 scopes, $2 texts) that have an entry.
const takenSQL = `
	SELECT r.scope, r.reference FROM unnest($1::text[], $2::text[]) AS r (scope, reference)
	CROSS JOIN LATERAL (SELECT FROM ledger_entries WHERE scope = r.scope AND reference = r.reference) e`

// Open locks wallets for the transaction, in the order of their ids, and reads
// what commands on them are decided on, in one round trip. With
// postgres.SkipLocked, wallets that somebody else has locked are Busy. In the
// order of locks (docs/architecture.md) wallets come after campaigns and before
// jobs that are settled.
func Open(ctx context.Context, tx pgx.Tx, want Wanted, mode postgres.LockMode) (*Book, error) {
	b := &Book{accounts: make(map[uuid.UUID]*account), authorizations: make(map[uuid.UUID]*authorization), references: make(map[Reference]bool)}
	ids := slices.Clone(want.Wallets)
	slices.SortFunc(ids, uuidv7.Compare)
	ids = slices.Compact(ids)
	locked := make(map[uuid.UUID]bool, len(ids))
	var p pgx.Batch
	p.Queue(`SELECT id FROM wallets WHERE id = ANY($1) ORDER BY id`+string(mode), ids).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { locked[id] = true; return nil })
		return err
	})
	p.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	p.Queue(stateSQL, ids).Query(func(rows pgx.Rows) error { return b.scanState(rows, locked) })
	p.Queue(authorizationsSQL, ids, want.Authorizations).Query(b.scanAuthorizations)
	if len(want.References) > 0 {
		scopes, texts := make([]string, len(want.References)), make([]string, len(want.References))
		for i, r := range want.References {
			scopes[i], texts[i] = r.Scope, r.Text
		}
		p.Queue(takenSQL, scopes, texts).Query(func(rows pgx.Rows) error {
			var r Reference
			_, err := pgx.ForEachRow(rows, []any{&r.Scope, &r.Text}, func() error { b.references[r] = true; return nil })
			return err
		})
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return nil, fmt.Errorf("wallet.Open: %w", err)
	}
	return b, nil
}

// ErrBroken means that a wallet is not what its events add up to. Its commands
// fail, and nobody else's: money that two books disagree on is not moved.
var ErrBroken = errors.New("wallet: the read model is not what the events add up to")

// ErrBusy means that somebody else has the wallet locked.
var ErrBusy = errors.New("wallet: busy")

func (b *Book) scanState(rows pgx.Rows, locked map[uuid.UUID]bool) error {
	var w Wallet
	var snapshot, events, last int64
	var balance, held money.Amount
	var active int
	_, err := pgx.ForEachRow(rows, []any{&w.ID, &w.Owner.ID, &w.Currency, &w.Balance, &w.Held, &w.Version, &w.CreatedAt,
		&snapshot, &events, &last, &balance, &held, &active}, func() error {
		a := &account{Wallet: w, start: w.Version, snapshot: snapshot, active: active}
		switch {
		case !locked[w.ID]:
			a.closed = ErrBusy
			b.busy = append(b.busy, w.ID)
		case w.Version != snapshot+events || events > 0 && w.Version != last || w.Balance != balance || w.Held != held:
			a.closed = fmt.Errorf("%w: wallet %s has version %d, balance %d, held %d; snapshot %d and %d events give %d, %d",
				ErrBroken, w.ID, w.Version, w.Balance, w.Held, snapshot, events, balance, held)
		}
		b.folded += events
		b.accounts[w.ID] = a
		return nil
	})
	return err
}

// scanAuthorizations comes after scanState. Those of wallets that are not locked are nobody's concern here.
func (b *Book) scanAuthorizations(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, scanAuthorization)
	slices.SortFunc(found, func(x, y Authorization) int { return x.ExpiresAt.Compare(y.ExpiresAt) })
	for _, found := range found {
		a := b.accounts[found.WalletID]
		if a == nil || a.closed != nil {
			continue
		}
		h := &authorization{Authorization: found, was: found.Captured}
		b.authorizations[h.ID] = h
		if h.over(b.now) {
			a.due = append(a.due, h)
		}
	}
	return err
}

// over tells whether an active authorization's time is over.
func (h *authorization) over(now time.Time) bool { return h.State == Active && !h.ExpiresAt.After(now) }
