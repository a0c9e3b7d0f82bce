package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/personal"
	"triprize/internal/platform/postgres"
)

// ReadSet is what the commands of a transaction need to read.
type ReadSet struct {
	Wallets        []uuid.UUID
	Clients        []string    // only their wallets are locked, others are busy; nil: those of every client
	Authorizations []uuid.UUID // to be captured or voided
	References     []Reference // that may be used already
}

// stateSQL reads wallets $1 uuid[] with their last snapshot and the sum of the
// events after it. There are fewer than SnapshotEvery such events. The LIMIT tells
// the planner that they are few: without it the planner reads all events of an old
// wallet. A wallet that holds nothing has no active authorizations to count.
const stateSQL = `
	SELECT ` + walletColumns + `, coalesce(s.version, 0), e.events, e.last, coalesce(s.balance, 0) + e.balance, coalesce(s.held, 0) + e.held,
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

// authorizationsSQL reads the authorizations of wallets $1 uuid[] that are over, and
// the authorizations $2 uuid[]. The clock is in a subquery, so that it is read once
// and an index can be used.
const authorizationsSQL = `
	SELECT a.* FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (
		SELECT ` + authorizationColumns + ` FROM authorizations
		WHERE wallet_id = i.id AND state = 'active' AND expires_at <= (SELECT clock_timestamp())) a
	UNION
	SELECT a.* FROM unnest($2::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT ` + authorizationColumns + ` FROM authorizations WHERE id = i.id) a`

// usedSQL returns those of the references ($1 scopes, $2 texts) that have an entry, and which.
const usedSQL = `
	SELECT r.scope, r.reference, e.id FROM unnest($1::text[], $2::text[]) AS r (scope, reference)
	CROSS JOIN LATERAL (SELECT id FROM ledger_entries WHERE scope = r.scope AND reference = r.reference) e`

// Open locks wallets for the transaction, in the order of their ids, and reads what
// commands on them need, in one round trip. With postgres.SkipLocked, wallets that
// another transaction has locked are Busy. A transaction locks campaigns before
// wallets, and the jobs that it completes after them.
func Open(ctx context.Context, tx pgx.Tx, want ReadSet, mode postgres.LockMode) (*UnitOfWork, error) {
	u := &UnitOfWork{accounts: make(map[uuid.UUID]*account), authorizations: make(map[uuid.UUID]*authorization), references: make(map[Reference]uuid.UUID)}
	ids := slices.Clone(want.Wallets)
	slices.SortFunc(ids, uuidv7.Compare)
	ids = slices.Compact(ids)
	locked := make(map[uuid.UUID]bool, len(ids))
	var p pgx.Batch
	var id uuid.UUID
	p.Queue(`SELECT id FROM wallets WHERE id = ANY($1) AND ($2::text[] IS NULL OR client = ANY($2)) ORDER BY id`+mode.SQL(), ids, want.Clients).Query(postgres.Each(func() { locked[id] = true }, &id))
	p.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&u.now) })
	p.Queue(stateSQL, ids).Query(func(rows pgx.Rows) error { return u.scanState(rows, locked) })
	p.Queue(authorizationsSQL, ids, want.Authorizations).Query(u.scanAuthorizations)
	if len(want.References) > 0 {
		scopes, texts := make([]string, len(want.References)), make([]string, len(want.References))
		for i, r := range want.References {
			scopes[i], texts[i] = r.Scope, r.Text
		}
		var r Reference
		var id uuid.UUID
		p.Queue(usedSQL, scopes, texts).Query(postgres.Each(func() { u.references[r] = id }, &r.Scope, &r.Text, &id))
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return nil, fmt.Errorf("wallet.Open: %w", err)
	}
	return u, nil
}

// ErrBroken means that the row of a wallet does not equal the sum of its events.
// Commands on that wallet fail; those on other wallets go on.
var ErrBroken = errors.New("wallet: its row does not equal the sum of its events")

// errErased refuses commands on a wallet of somebody who was erased: nobody could get its money.
var errErased = fault.New(fault.StateConflict, "the owner of the wallet was erased")

// ErrBusy means that another transaction has locked the wallet.
var ErrBusy = fault.New(fault.Unavailable, "the wallet is busy; retry with the same Idempotency-Key")

func (u *UnitOfWork) scanState(rows pgx.Rows, locked map[uuid.UUID]bool) error {
	var w Wallet
	var snapshot, events, last int64
	var balance, held money.Amount
	var active int
	_, err := pgx.ForEachRow(rows, append(w.targets(), &snapshot, &events, &last, &balance, &held, &active), func() error {
		a := &account{Wallet: w, start: w.Version, snapshot: snapshot, active: active}
		switch {
		case !locked[w.ID]:
			a.blocked = ErrBusy
		case personal.IsPseudonym(w.Owner.ID):
			a.blocked = errErased
		case w.Version != snapshot+events || events > 0 && w.Version != last || w.Balance != balance || w.Held != held:
			a.blocked = fmt.Errorf("%w: wallet %s has version %d, balance %d, held %d; snapshot %d and %d events give %d, %d",
				ErrBroken, w.ID, w.Version, w.Balance, w.Held, snapshot, events, balance, held)
		}
		u.accounts[w.ID] = a
		return nil
	})
	return err
}

// scanAuthorizations runs after scanState. It skips authorizations of wallets that
// are busy or broken.
func (u *UnitOfWork) scanAuthorizations(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, scanAuthorization)
	slices.SortFunc(found, func(x, y Authorization) int { return x.ExpiresAt.Compare(y.ExpiresAt) })
	for _, found := range found {
		a := u.accounts[found.WalletID]
		if a == nil || a.blocked != nil {
			continue
		}
		h := &authorization{Authorization: found, was: found.Captured}
		u.authorizations[h.ID] = h
		if h.over(u.now) {
			a.due = append(a.due, h)
		}
	}
	return err
}

// over reports whether an authorization is active and its deadline has passed.
func (h *authorization) over(now time.Time) bool { return h.State == Active && !h.ExpiresAt.After(now) }

// Lost reports whether a transaction failed because another one was faster, so that
// a new attempt may succeed: rows have changed, or a version or a reference has just
// been used.
func Lost(err error) bool {
	if errors.Is(err, postgres.ErrRows) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" &&
		(pg.ConstraintName == "wallet_events_pkey" || pg.ConstraintName == "ledger_entries_scope_reference_key")
}

// Write writes what the commands have decided, in one round trip.
func (u *UnitOfWork) Write(ctx context.Context, tx pgx.Tx) error {
	var p pgx.Batch
	u.queue(&p)
	return fault.At(postgres.Send(ctx, tx, &p), "wallet.Write")
}

// queue adds the statements of Write to a batch, for callers that write more in the
// same round trip. Each statement fails when it does not change exactly its rows.
func (u *UnitOfWork) queue(p *pgx.Batch) {
	if len(u.entries) == 0 {
		return
	}
	u.queueEntries(p)
	u.queueEvents(p)
	u.queueAuthorizations(p)
	u.queueWallets(p)
}

// queueEntries inserts in the order of references, so that two transactions with the
// same references cannot deadlock.
func (u *UnitOfWork) queueEntries(p *pgx.Batch) {
	entries := slices.Clone(u.entries)
	slices.SortFunc(entries, func(x, y Entry) int {
		return cmp.Or(strings.Compare(x.Reference.Scope, y.Reference.Scope), strings.Compare(x.Reference.Text, y.Reference.Text))
	})
	n := len(entries)
	ids, kinds, amounts, currencies := make([]uuid.UUID, n), make([]string, n), make([]int64, n), make([]string, n)
	payers, payees, authorizations := make([]*uuid.UUID, n), make([]*uuid.UUID, n), make([]*uuid.UUID, n)
	from, to, descriptions := make([]*string, n), make([]*string, n), make([]*string, n)
	scopes, references, metadata := make([]string, n), make([]string, n), make([][]byte, n)
	purchases, actors := make([]*uuid.UUID, n), make([]string, n)
	for i, e := range entries {
		ids[i], kinds[i], amounts[i], currencies[i] = e.ID, string(e.Kind), int64(e.Amount), e.Currency
		payers[i], from[i] = postgres.Nullable(e.Debit.Wallet), postgres.Nullable(string(e.Debit.Account))
		payees[i], to[i] = postgres.Nullable(e.Credit.Wallet), postgres.Nullable(string(e.Credit.Account))
		scopes[i], references[i], descriptions[i], authorizations[i] = e.Reference.Scope, e.Reference.Text, postgres.Nullable(e.Description), postgres.Nullable(e.Authorization)
		metadata[i], purchases[i], actors[i] = e.Metadata.Text(), postgres.Nullable(e.PurchaseID), e.Actor
	}
	p.Queue(`
		INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency,
		                            scope, reference, description, authorization_id, metadata, purchase_id, actor, created_at)
		SELECT e.*, $16::timestamptz FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[],
		                            $9::text[], $10::text[], $11::text[], $12::uuid[], $13::jsonb[], $14::uuid[], $15::text[]) AS e`,
		ids, kinds, payers, from, payees, to, amounts, currencies, scopes, references, descriptions, authorizations, metadata, purchases, actors, u.now).Exec(postgres.Exactly(n, "entries"))
}

// queueEvents inserts the events. Their versions follow the last one that was read.
func (u *UnitOfWork) queueEvents(p *pgx.Batch) {
	n := len(u.events)
	wallets, versions, entries := make([]uuid.UUID, n), make([]int64, n), make([]uuid.UUID, n)
	balances, helds := make([]int64, n), make([]int64, n)
	for i, e := range u.events {
		wallets[i], versions[i], entries[i], balances[i], helds[i] = e.Wallet, e.Version, e.Entry.ID, int64(e.DeltaBalance), int64(e.DeltaHeld)
	}
	p.Queue(`
		INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held, at)
		SELECT e.*, $6::timestamptz FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[]) AS e`,
		wallets, versions, entries, balances, helds, u.now).Exec(postgres.Exactly(n, "events"))
}

func (u *UnitOfWork) queueAuthorizations(p *pgx.Batch) {
	var made, changed []*authorization
	for _, h := range u.authorizations {
		if h.inserted {
			made = append(made, h)
		} else if h.changed {
			changed = append(changed, h)
		}
	}
	if n := len(made); n > 0 {
		ids, wallets, amounts, captured := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n), make([]int64, n)
		states, descriptions, expiries, metadata := make([]string, n), make([]*string, n), make([]time.Time, n), make([][]byte, n)
		for i, h := range made {
			ids[i], wallets[i], amounts[i], captured[i] = h.ID, h.WalletID, int64(h.Amount), int64(h.Captured)
			states[i], descriptions[i], expiries[i] = string(h.State), postgres.Nullable(h.Description), h.ExpiresAt
			metadata[i] = h.Metadata.Text()
		}
		p.Queue(`
			INSERT INTO authorizations (id, wallet_id, amount, captured, state, description, expires_at, metadata, created_at, ended_at)
			SELECT a.*, $9::timestamptz, CASE WHEN a.state <> 'active' THEN $9::timestamptz END
			FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::timestamptz[], $8::jsonb[])
			     AS a (id, wallet_id, amount, captured, state, description, expires_at, metadata)`,
			ids, wallets, amounts, captured, states, descriptions, expiries, metadata, u.now).Exec(postgres.Exactly(n, "new authorizations"))
	}
	if n := len(changed); n > 0 {
		ids, captured, was, states := make([]uuid.UUID, n), make([]int64, n), make([]int64, n), make([]string, n)
		for i, h := range changed {
			ids[i], captured[i], was[i], states[i] = h.ID, int64(h.Captured), int64(h.was), string(h.State)
		}
		p.Queue(`
			UPDATE authorizations a
			SET captured = c.captured, state = c.state, ended_at = CASE WHEN c.state <> 'active' THEN $5::timestamptz END
			FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS c (id, captured, was, state)
			WHERE a.id = c.id AND a.state = 'active' AND a.captured = c.was`,
			ids, captured, was, states, u.now).Exec(postgres.Exactly(n, "authorizations"))
	}
}

// queueWallets updates the rows of wallets, at the version that was read, and writes
// the snapshots that are due.
func (u *UnitOfWork) queueWallets(p *pgx.Batch) {
	var ids, snapped []uuid.UUID
	var balances, helds, versions, starts []int64
	for id, a := range u.accounts {
		if a.Version == a.start {
			continue
		}
		ids, starts = append(ids, id), append(starts, a.start)
		balances, helds, versions = append(balances, int64(a.Balance)), append(helds, int64(a.Held)), append(versions, a.Version)
		if a.Version-a.snapshot >= SnapshotEvery {
			snapped = append(snapped, id)
		}
	}
	p.Queue(`
		UPDATE wallets w SET balance = c.balance, held = c.held, version = c.version
		FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c (id, balance, held, version, start)
		WHERE w.id = c.id AND w.version = c.start`,
		ids, balances, helds, versions, starts).Exec(postgres.Exactly(len(ids), "wallets"))
	if len(snapped) > 0 {
		p.Queue(`
			INSERT INTO wallet_snapshots (wallet_id, version, balance, held)
			SELECT id, version, balance, held FROM wallets WHERE id = ANY($1)`, snapped).Exec(postgres.Exactly(len(snapped), "snapshots"))
	}
}
