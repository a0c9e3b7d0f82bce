package export

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"
)

// walletRow is a wallet as it was at a moment.
type walletRow struct {
	window

	ID           uuid.UUID `json:"id"`
	OwnerID      string    `json:"owner_id"`
	Client       string    `json:"client"`
	CreatedAt    time.Time `json:"created_at"`
	AsOf         time.Time `json:"as_of"`
	Currency     string    `json:"currency"`
	BalanceMinor int64     `json:"balance_minor"`
	Balance      decimal   `json:"balance"`
	HeldMinor    int64     `json:"held_minor"` // of the balance
	Held         decimal   `json:"held"`
	Version      int64     `json:"version"`
}

// Events have no index by time: the last one before the moment is searched by halves, as versions have no gaps, and the sum up
// to it begins at a snapshot. So a wallet with a million events takes 20 steps.
var walletsSQL = windowed(`wallets`, pageRows, `id > $1`, `(p.created_at < $2 AND ($3::text IS NULL OR p.client = $3))`, `
	p.id, p.owner_id, p.client, p.created_at, $2 AS as_of, p.currency, v.version,
	coalesce(s.balance, 0) + t.balance AS balance_minor, coalesce(s.held, 0) + t.held AS held_minor`, `
	CROSS JOIN LATERAL (
		WITH RECURSIVE search (version, after) AS (
			SELECT 0::bigint, p.version + 1
			UNION ALL
			SELECT CASE WHEN e.at < $2 THEN e.version ELSE s.version END, CASE WHEN e.at < $2 THEN s.after ELSE e.version END
			FROM search s CROSS JOIN LATERAL (
				SELECT version, at FROM wallet_events WHERE wallet_id = p.id AND version = (s.version + s.after) / 2) e
			WHERE s.after - s.version > 1)
		SELECT version FROM search ORDER BY after - version LIMIT 1) v
	LEFT JOIN LATERAL (
		SELECT version, balance, held FROM wallet_snapshots WHERE wallet_id = p.id AND version <= v.version
		ORDER BY version DESC LIMIT 1) s ON true
	CROSS JOIN LATERAL (
		SELECT coalesce(sum(delta_balance), 0)::bigint AS balance, coalesce(sum(delta_held), 0)::bigint AS held
		FROM (SELECT delta_balance, delta_held FROM wallet_events WHERE wallet_id = p.id AND version > coalesce(s.version, 0) AND version <= v.version
		      ORDER BY version LIMIT 1000) l) t`)

func (e *Export) wallets(ctx context.Context) iter.Seq2[any, error] {
	return paged[walletRow](ctx, e, uuid.Nil.String(), time.Now(), walletsSQL, e.AsOf, e.Client)
}

// ledgerRow is an entry of the ledger that was made in the period.
type ledgerRow struct {
	window

	ID              uuid.UUID         `json:"id"`
	CreatedAt       time.Time         `json:"created_at"`
	Kind            string            `json:"kind"`
	Posted          bool              `json:"posted"`         // false: it holds money or releases it, and moves none
	DebitAccount    *string           `json:"debit_account"`  // null: a wallet
	DebitWallet     *uuid.UUID        `json:"debit_wallet"`   // which gives; null: an account of the system
	CreditAccount   *string           `json:"credit_account"` // null: a wallet
	CreditWallet    *uuid.UUID        `json:"credit_wallet"`  // which gets; null: an account of the system
	Client          *string           `json:"client"`         // of the wallet
	Currency        string            `json:"currency"`
	AmountMinor     int64             `json:"amount_minor"`
	Amount          decimal           `json:"amount"`
	Reference       string            `json:"reference"`
	Description     *string           `json:"description"`
	PurchaseID      *uuid.UUID        `json:"purchase_id"`
	AuthorizationID *uuid.UUID        `json:"authorization_id"`
	Actor           string            `json:"by"`
	Metadata        map[string]string `json:"metadata"`
}

var ledgerSQL = windowed(`ledger_entries`, pageRows, ids, created+` AND $5::text IS NULL`, `
	p.id, p.created_at, p.kind, p.kind NOT IN ('authorize', 'void', 'expire') AS posted, p.debit_account, p.debit_wallet, p.credit_account, p.credit_wallet,
	(SELECT client FROM wallets WHERE id = coalesce(p.debit_wallet, p.credit_wallet)) AS client, p.currency, p.amount AS amount_minor, p.reference, p.description,
	p.purchase_id, p.authorization_id, p.actor, p.metadata`, ``)

func (e *Export) ledger(ctx context.Context) iter.Seq2[any, error] {
	return inPeriod[ledgerRow](ctx, e, ledgerSQL)
}
