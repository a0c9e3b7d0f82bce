// Package wallet owns wallets and the ledger. Every movement of money between
// wallets, or between a wallet and the outside, is one entry of the ledger.
//
//	                ┌─ capture (all of it) ─▶ captured
//	authorize ─▶ active ──── void ──────────▶ voided
//	              │ ▲  └──── expire ────────▶ expired
//	              └─┘
//	            capture (a part)
//
// An entry debits one side and credits the other. A side is a wallet or an account of
// the system. Each wallet of an entry gets one event, at its next version. Entries and
// events are append-only, and they are the truth. The row in wallets is the sum of the
// events: it is written in the same transaction, compared with the events by every
// command, and computed again by the audit. Accounts of the system have no row, so no
// transaction waits for them.
//
// Credits come from the account funding; debits and captures go to it. The money of
// purchases goes to sales, and refunds come from refunds. So in every currency all
// wallets and accounts together sum to zero. Only posted entries count in that sum.
// Entries of the kinds authorize, void and expire are pending: they change what a
// wallet holds and move no money. A capture moves money and lowers what is held by
// the same amount. A wallet may spend its balance less what it holds.
//
// # One transaction
//
// A [Batcher] gathers commands; an [Executor] executes a batch in one transaction, each
// command exactly once per idempotency key.
//
//	lock keys ─▶ create wallets ─▶ lock wallets ─▶ read ─▶ decide, one by one ─▶ write ─▶ record answers
//
// A batch has commands on any number of wallets, in order of arrival: the order decides
// which command gets the last money. Each command sees the effects of those before it. A
// command that is refused has no effect. Every transaction takes its locks in the same
// order (keys, new wallets by owner, wallets by id), so transactions cannot deadlock.
//
// A [UnitOfWork] is the only way to write. [Open] locks the rows of its wallets and reads
// them in later statements; [UnitOfWork.Write] writes everything in one round trip, at the
// versions that were read. Two guards prevent lost updates, and each is enough alone: the
// row lock, and the version, which is unique per wallet and event, so that a writer without
// the lock fails ([Lost]).
//
// An authorization is over at its deadline by the database's clock, even before a sweep has
// ended it. A command that would fail for lack of money first expires the authorizations of
// its wallet that are over.
package wallet

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
)

const (
	// maxAmount bounds what one command moves, in minor units.
	maxAmount = money.MaxAmount
	// maxBalance bounds the balance of a wallet, in minor units. A double can still
	// hold it exactly, for clients that have no other numbers.
	maxBalance money.Amount = 9_000_000_000_000_000
	// maxActive bounds the active authorizations of a wallet, and so the number that
	// one command may have to end.
	maxActive = 100
	// minTTL and maxTTL bound the life of an authorization.
	minTTL = time.Second
	maxTTL = 30 * 24 * time.Hour
	// SnapshotEvery is how many events after the last snapshot make a new one. A
	// command adds up fewer events than this. docs/adr/0011-wallets.md
	// has the measurements.
	SnapshotEvery = 32

	maxDescription = 500
	maxReference   = 180
	maxOwner       = 128
)

// Owner is the owner of a wallet at a client, and its currency. There is one wallet for each.
type Owner struct {
	Client   string
	ID       string
	Currency string
}

// Wallet is a wallet with the sums of its events.
type Wallet struct {
	ID uuid.UUID
	Owner
	Balance   money.Amount // minor units
	Held      money.Amount // by active authorizations
	Version   int64        // of its last event; 0: none yet
	CreatedAt time.Time
	Metadata  metadata.Map
}

// Available is what the wallet may spend.
func (w Wallet) Available() money.Amount { return w.Balance - w.Held }

// Kind is what an entry is about.
type Kind string

// The kinds of entries. Those from KindAuthorize on concern an authorization.
const (
	KindCredit    Kind = "credit"
	KindDebit     Kind = "debit"
	KindTransfer  Kind = "transfer"
	KindPurchase  Kind = "purchase"
	KindRefund    Kind = "refund"
	KindAuthorize Kind = "authorize"
	KindCapture   Kind = "capture"
	KindVoid      Kind = "void"
	KindExpire    Kind = "expire"
)

// Account is an account of the system.
type Account string

// The accounts.
const (
	funding Account = "funding"
	sales   Account = "sales"
	refunds Account = "refunds"
)

// Side is one end of an entry: a wallet or an account.
type Side struct {
	Wallet  uuid.UUID
	Account Account
}

// Reference identifies a movement, so that it is not made twice. It is unique
// within its scope: the client of the wallet (of a transfer, of the payer), or empty for references that Triprize
// makes.
type Reference struct{ Scope, Text string }

// Entry is one movement.
type Entry struct {
	ID            uuid.UUID
	Kind          Kind
	Debit, Credit Side
	Amount        money.Amount
	Currency      string
	Reference     Reference
	Description   string
	Authorization uuid.UUID // zero: none
	PurchaseID    uuid.UUID // zero: none
	Actor         string    // role:client, and /user when one was signed in; or job.System
	CreatedAt     time.Time
	Metadata      metadata.Map
}

// Event is the effect of an entry on one wallet.
type Event struct {
	Wallet        uuid.UUID
	Version       int64
	DeltaBalance  money.Amount
	DeltaHeld     money.Amount
	Balance, Held money.Amount // after it
	At            time.Time
	Entry         Entry
}

// AuthorizationState is the state of an authorization.
type AuthorizationState string

// The states.
const (
	Active   AuthorizationState = "active"
	Captured AuthorizationState = "captured"
	Voided   AuthorizationState = "voided"
	Expired  AuthorizationState = "expired"
)

// Authorization is money that a wallet holds until it is captured or released.
type Authorization struct {
	ID          uuid.UUID
	WalletID    uuid.UUID
	Amount      money.Amount
	Captured    money.Amount
	State       AuthorizationState
	Description string
	CreatedAt   time.Time
	ExpiresAt   time.Time
	Metadata    metadata.Map // of the movement that made it
}

// Remaining is what the authorization still holds.
func (a Authorization) Remaining() money.Amount {
	if a.State != Active {
		return 0
	}
	return a.Amount - a.Captured
}

// Movement is what all commands on a wallet have in common.
type Movement struct {
	Amount      money.Amount // minor units
	Reference   Reference    // zero: the entry's own id; one that may have been used is to be in ReadSet.References: Write fails with a used one
	Description string
	Metadata    metadata.Map
	PurchaseID  uuid.UUID // of Pay and Refund
	Actor       string    // role:client, and /user when one was signed in; empty: job.System
	IfVersion   *int64    // refuse unless the wallet has this version; of a transfer: the wallet that pays
}
