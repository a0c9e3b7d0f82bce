package wallet

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
)

// Book is the state of one transaction: the wallets it has locked, and what
// commands have decided to do with them. Nothing is written before Write or Queue.
// A Book is for one goroutine.
type Book struct {
	now            time.Time // the database's, after the locks were granted
	accounts       map[uuid.UUID]*account
	authorizations map[uuid.UUID]*authorization
	references     map[Reference]bool // taken
	busy           []uuid.UUID
	folded         int64 // events that Open has added up

	entries []Entry
	events  []event
}

// account is a wallet after the commands so far.
type account struct {
	Wallet
	closed   error // why commands on it fail; nil: they may go on
	start    int64 // the version that was read
	snapshot int64 // the version of the last snapshot
	active   int   // authorizations
	due      []*authorization
}

// authorization is an authorization after the commands so far.
type authorization struct {
	Authorization
	fresh   bool         // made by this transaction
	was     money.Amount // captured when it was read
	changed bool
}

// event is one row of wallet_events.
type event struct {
	walletID     uuid.UUID
	version      int64
	entryID      uuid.UUID
	deltaBalance money.Amount
	deltaHeld    money.Amount
}

// Movement is what all commands on a wallet have in common.
type Movement struct {
	Amount      money.Amount // minor units
	Reference   Reference    // zero: the entry's own id; any other must be in Wanted.References
	Description string
	Metadata    metadata.Map
	IfVersion   *int64 // refuse unless the wallet has this version; of a transfer: the wallet that pays
}

// Now is the database's time just after the wallets were locked.
func (b *Book) Now() time.Time { return b.now }

// Busy returns the wallets that another transaction has locked.
func (b *Book) Busy() []uuid.UUID { return b.busy }

// Wallet returns a wallet after the commands so far. Its errors are those that every
// command can return: not-found, ErrBusy, ErrBroken.
func (b *Book) Wallet(id uuid.UUID) (Wallet, error) {
	a, err := b.account(id)
	if err != nil {
		return Wallet{}, err
	}
	return a.Wallet, nil
}

func (b *Book) account(id uuid.UUID) (*account, error) {
	a := b.accounts[id]
	if a == nil {
		return nil, fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return a, a.closed
}

// Credit adds money from outside.
func (b *Book) Credit(id uuid.UUID, m Movement) (Entry, error) {
	return b.give(KindCredit, Funding, id, m)
}

// Debit pays money out.
func (b *Book) Debit(id uuid.UUID, m Movement) (Entry, error) {
	return b.take(KindDebit, Funding, id, m)
}

// Pay takes the price of a purchase.
func (b *Book) Pay(id uuid.UUID, m Movement) (Entry, error) {
	return b.take(KindPurchase, Sales, id, m)
}

// Refund gives back the price of a purchase.
func (b *Book) Refund(id uuid.UUID, m Movement) (Entry, error) {
	return b.give(KindRefund, Refunds, id, m)
}

func (b *Book) give(kind Kind, from Account, id uuid.UUID, m Movement) (Entry, error) {
	a, err := b.account(id)
	if err != nil {
		return Entry{}, err
	}
	if err := b.admit(a, kind, m); err != nil {
		return Entry{}, err
	}
	if err := a.room(m.Amount); err != nil {
		return Entry{}, err
	}
	e := b.entry(kind, a.Currency, m)
	e.Debit.Account, e.Credit.Wallet = from, id
	b.post(e, leg{a, m.Amount, 0})
	return e, nil
}

func (b *Book) take(kind Kind, to Account, id uuid.UUID, m Movement) (Entry, error) {
	a, err := b.account(id)
	if err != nil {
		return Entry{}, err
	}
	if err := b.admit(a, kind, m); err != nil {
		return Entry{}, err
	}
	if err := b.afford(a, m.Amount); err != nil {
		return Entry{}, err
	}
	e := b.entry(kind, a.Currency, m)
	e.Debit.Wallet, e.Credit.Account = id, to
	b.post(e, leg{a, -m.Amount, 0})
	return e, nil
}

// Transfer moves money from one wallet to another in the same currency.
func (b *Book) Transfer(from, to uuid.UUID, m Movement) (Entry, error) {
	if from == to {
		return Entry{}, invalid("/to", "must be another wallet than the one that pays")
	}
	payer, err := b.account(from)
	if err != nil {
		return Entry{}, err
	}
	payee, err := b.account(to)
	if err != nil {
		return Entry{}, err
	}
	if payer.Currency != payee.Currency {
		return Entry{}, invalid("/to", "has "+payee.Currency+", and the wallet that pays has "+payer.Currency)
	}
	if err := b.admit(payer, KindTransfer, m); err != nil {
		return Entry{}, err
	}
	if err := payee.room(m.Amount); err != nil {
		return Entry{}, err
	}
	if err := b.afford(payer, m.Amount); err != nil {
		return Entry{}, err
	}
	e := b.entry(KindTransfer, payer.Currency, m)
	e.Debit.Wallet, e.Credit.Wallet = from, to
	b.post(e, leg{payer, -m.Amount, 0}, leg{payee, m.Amount, 0})
	return e, nil
}

// leg is what an entry does to one wallet.
type leg struct {
	*account
	deltaBalance, deltaHeld money.Amount
}

// entry makes an entry of a movement; the caller sets its sides.
func (b *Book) entry(kind Kind, currency string, m Movement) Entry {
	e := Entry{ID: uuidv7.New(), Kind: kind, Amount: m.Amount, Currency: currency, Reference: m.Reference, Description: m.Description, CreatedAt: b.now, Metadata: m.Metadata}
	if e.Reference == (Reference{}) {
		e.Reference.Text = e.ID.String()
	}
	return e
}

// post adds an entry to the book, with one event for each leg.
func (b *Book) post(e Entry, legs ...leg) {
	b.references[e.Reference] = true
	b.entries = append(b.entries, e)
	for _, l := range legs {
		l.Balance += l.deltaBalance
		l.Held += l.deltaHeld
		l.Version++
		b.events = append(b.events, event{walletID: l.ID, version: l.Version, entryID: e.ID,
			deltaBalance: l.deltaBalance, deltaHeld: l.deltaHeld})
	}
}
