package wallet

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
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// Wanted is what the commands of a transaction need to read.
type Wanted struct {
	Wallets        []uuid.UUID
	Clients        []string    // whose wallets are locked, others are busy; nil: of every client
	Authorizations []uuid.UUID // to be captured or voided
	References     []Reference // that callers gave
}

// stateSQL reads wallets $1 uuid[] with their last snapshot and the sum of the
// events after it. There are fewer than SnapshotEvery such events. The LIMIT tells
// the planner that they are few: without it the planner reads all events of an old
// wallet. A wallet that holds nothing has no active authorizations to count.
const stateSQL = `
	SELECT w.id, w.owner_id, w.currency, w.balance, w.held, w.version, w.created_at,
	       coalesce(s.version, 0), e.events, e.last, coalesce(s.balance, 0) + e.balance, coalesce(s.held, 0) + e.held,
	       CASE WHEN w.held = 0 THEN 0
	            ELSE (SELECT count(*) FROM authorizations a WHERE a.wallet_id = w.id AND a.state = 'active') END,
	       w.client, (SELECT metadata FROM wallet_metadata WHERE wallet_id = w.id)
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

// takenSQL returns those of the references ($1 scopes, $2 texts) that have an entry, and which.
const takenSQL = `
	SELECT r.scope, r.reference, e.id FROM unnest($1::text[], $2::text[]) AS r (scope, reference)
	CROSS JOIN LATERAL (SELECT id FROM ledger_entries WHERE scope = r.scope AND reference = r.reference) e`

// Open locks wallets for the transaction, in the order of their ids, and reads what
// commands on them need, in one round trip. With postgres.SkipLocked, wallets that
// another transaction has locked are Busy. A transaction locks campaigns before
// wallets, and the jobs that it finalizes after them.
func Open(ctx context.Context, tx pgx.Tx, want Wanted, mode postgres.LockMode) (*UnitOfWork, error) {
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
		p.Queue(takenSQL, scopes, texts).Query(postgres.Each(func() { u.references[r] = id }, &r.Scope, &r.Text, &id))
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return nil, fmt.Errorf("wallet.Open: %w", err)
	}
	return u, nil
}

// Lock locks wallets for the transaction, in the order of their ids. It reads nothing. With
// postgres.SkipLocked it returns those that another transaction has locked.
func Lock(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, mode postgres.LockMode) (busy []uuid.UUID, err error) {
	busy, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		WITH locked AS MATERIALIZED (SELECT id FROM wallets WHERE id = ANY($1) ORDER BY id`+mode.SQL()+`)
		SELECT id FROM wallets WHERE id = ANY($1) AND id NOT IN (SELECT id FROM locked) ORDER BY id`, ids)
	return busy, fault.At(err, "wallet.Lock")
}

// ErrBroken means that the row of a wallet does not equal the sum of its events.
// Commands on that wallet fail; those on other wallets go on.
var ErrBroken = errors.New("wallet: its row does not equal the sum of its events")

// ErrBusy means that another transaction has locked the wallet.
var ErrBusy = errors.New("wallet: busy")

func (u *UnitOfWork) scanState(rows pgx.Rows, locked map[uuid.UUID]bool) error {
	var w Wallet
	var snapshot, events, last int64
	var balance, held money.Amount
	var active int
	_, err := pgx.ForEachRow(rows, []any{&w.ID, &w.Owner.ID, &w.Currency, &w.Balance, &w.Held, &w.Version, &w.CreatedAt,
		&snapshot, &events, &last, &balance, &held, &active, &w.Client, &w.Metadata}, func() error {
		a := &account{Wallet: w, start: w.Version, snapshot: snapshot, active: active}
		switch {
		case !locked[w.ID]:
			a.closed = ErrBusy
			u.busy = append(u.busy, w.ID)
		case w.Version != snapshot+events || events > 0 && w.Version != last || w.Balance != balance || w.Held != held:
			a.closed = fmt.Errorf("%w: wallet %s has version %d, balance %d, held %d; snapshot %d and %d events give %d, %d",
				ErrBroken, w.ID, w.Version, w.Balance, w.Held, snapshot, events, balance, held)
		}
		u.folded += events
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
		if a == nil || a.closed != nil {
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

// PayBack is the price of a purchase, or of a part of it, that goes back to the wallet that paid.
type PayBack struct {
	PurchaseID uuid.UUID
	Part       uuid.UUID // the job that cancels a part; zero: all that is left
	Owner      Owner
	Amount     money.Amount
	By         string // who cancels it
}

// reference identifies what is paid back: there is one per part, and one of what is left.
func (p PayBack) reference() Reference {
	text := "refund:" + p.PurchaseID.String()
	if p.Part != uuid.Nil {
		text += ":" + p.Part.String()
	}
	return Reference{Text: text}
}

// Buyers are the wallets of buyers, which pay for purchases and are paid back to. Nothing is
// written before [Buyers.Queue]. A Buyers without wallets is empty.
type Buyers struct {
	unit    *UnitOfWork // nil: no wallet is wanted
	wallets map[Owner]uuid.UUID
}

// OpenBuyers locks the wallets of those owners that have one, and finds which of the references are
// used. mode says whether to wait for wallets that another transaction has locked.
func OpenBuyers(ctx context.Context, tx pgx.Tx, owners map[Owner]bool, references map[Reference]bool, mode postgres.LockMode) (*Buyers, error) {
	wallets, err := Find(ctx, tx, slices.Collect(maps.Keys(owners)))
	if err != nil {
		return nil, err
	}
	unit, err := Open(ctx, tx, Wanted{Wallets: slices.Collect(maps.Values(wallets)), References: slices.Collect(maps.Keys(references))}, mode)
	return &Buyers{unit, wallets}, err
}

// OpenPayees is OpenBuyers for what is paid back. A purchase may be there several times.
func OpenPayees(ctx context.Context, tx pgx.Tx, want []PayBack, mode postgres.LockMode) (*Buyers, error) {
	if len(want) == 0 {
		return &Buyers{}, nil
	}
	owners, references := make(map[Owner]bool), make(map[Reference]bool)
	for _, back := range want {
		owners[back.Owner], references[back.reference()] = true, true
	}
	return OpenBuyers(ctx, tx, owners, references, mode)
}

// Busy reports whether another transaction has locked the wallet of an owner.
func (b *Buyers) Busy(owner Owner) bool {
	id, ok := b.wallets[owner]
	return ok && slices.Contains(b.unit.Busy(), id)
}

// Pay takes the price of a purchase.
func (b *Buyers) Pay(owner Owner, m Movement) (Entry, error) {
	id, ok := b.wallets[owner]
	if !ok {
		return Entry{}, fault.New(fault.InsufficientFunds, "this user has no wallet in %s", owner.Currency)
	}
	return b.unit.Pay(id, m)
}

// PayBack credits the wallet that paid a purchase. A wallet whose balance would be above
// its bound is a state-conflict Error, and a broken one [ErrBroken].
func (b *Buyers) PayBack(back PayBack) error {
	what := "cancelled purchase "
	if back.Part != uuid.Nil {
		what = "cancelled part of purchase "
	}
	_, err := b.unit.Refund(b.wallets[back.Owner], Movement{Amount: back.Amount, Reference: back.reference(), Description: what + back.PurchaseID.String(),
		PurchaseID: back.PurchaseID, Actor: back.By})
	if fault.CodeOf(err) == fault.InvalidRequest { // the balance would be above its bound
		return fault.New(fault.StateConflict, "the wallet cannot take the money back: %s", fault.From(err).Message)
	}
	return fault.At(err, "wallet.PayBack")
}

// Queue writes what was paid, see [UnitOfWork.Queue].
func (b *Buyers) Queue(p *pgx.Batch) {
	if b.unit != nil {
		b.unit.Queue(p)
	}
}
