package wallet

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
)

const (
	// MaxAmount bounds what one command moves, in minor units.
	MaxAmount = money.MaxAmount
	// MaxBalance bounds the balance of a wallet, in minor units. A double can still
	// hold it exactly, for clients that have no other numbers.
	MaxBalance money.Amount = 9_000_000_000_000_000
	// MaxActive bounds the active authorizations of a wallet, and so the number that
	// one command may have to end.
	MaxActive = 100
	// MinTTL is the shortest life of an authorization.
	MinTTL = time.Second
	// MaxTTL is the longest.
	MaxTTL = 30 * 24 * time.Hour
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

// The accounts; doc.go says what goes where.
const (
	Funding Account = "funding"
	Sales   Account = "sales"
	Refunds Account = "refunds"
)

// Side is one end of an entry: a wallet or an account.
type Side struct {
	Wallet  uuid.UUID
	Account Account
}

// Reference identifies a movement, so that it is not made twice. It is unique
// within its scope: the client that gave it, or empty for references that Triprize
// makes.
type Reference struct{ Scope, Text string }

// System is the actor of what nobody has asked for.
const System = "system"

// Entry is one movement.
type Entry struct {
	ID            uuid.UUID
	Kind          Kind
	Debit, Credit Side // who gives, and who gets
	Amount        money.Amount
	Currency      string
	Reference     Reference
	Description   string
	Authorization uuid.UUID // zero: none
	PurchaseID    uuid.UUID // zero: none
	Actor         string    // role:client, and /user when one was signed in; or System
	CreatedAt     time.Time
	Metadata      metadata.Map
}

// Event is the effect of an entry on one wallet.
type Event struct {
	Version       int64
	DeltaBalance  money.Amount
	DeltaHeld     money.Amount
	Balance, Held money.Amount // after it
	At            time.Time
	Entry         Entry
}

// AuthorizationState is the state of an authorization.
type AuthorizationState string

// The states; doc.go has the diagram.
const (
	Active   AuthorizationState = "active"
	Captured AuthorizationState = "captured"
	Voided   AuthorizationState = "voided"
	Expired  AuthorizationState = "expired"
)

// Authorization is money that a wallet holds until it is captured or given back.
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
