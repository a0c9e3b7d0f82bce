package wallet

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
)

// UnitOfWork is the state of one transaction: the wallets it has locked, and what
// commands have decided to do with them. Nothing is written before Write or Queue.
// A UnitOfWork is for one goroutine.
type UnitOfWork struct {
	now            time.Time // the database's, after the locks were granted
	accounts       map[uuid.UUID]*account
	authorizations map[uuid.UUID]*authorization
	references     map[Reference]uuid.UUID // taken: by which entry

	entries []Entry
	events  []Event
}

// account is a wallet after the commands so far.
type account struct {
	Wallet
	blocked  error // why commands on it fail; nil: they may go on
	start    int64 // the version that was read
	snapshot int64 // the version of the last snapshot
	active   int   // authorizations
	due      []*authorization
}

// authorization is an authorization after the commands so far.
type authorization struct {
	Authorization
	inserted bool         // made by this transaction
	was      money.Amount // captured when it was read
	changed  bool
}

// account returns a wallet after the commands so far. Its errors are those that every
// command can return: not-found, ErrBusy, ErrBroken.
func (u *UnitOfWork) account(id uuid.UUID) (*account, error) {
	a := u.accounts[id]
	if a == nil {
		return nil, fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return a, a.blocked
}

// Credit adds money from outside.
func (u *UnitOfWork) Credit(id uuid.UUID, m Movement) (Entry, error) {
	return u.move(KindCredit, Side{Account: funding}, Side{Wallet: id}, m)
}

// Debit pays money out.
func (u *UnitOfWork) Debit(id uuid.UUID, m Movement) (Entry, error) {
	return u.move(KindDebit, Side{Wallet: id}, Side{Account: funding}, m)
}

// Pay takes the price of a purchase.
func (u *UnitOfWork) Pay(id uuid.UUID, m Movement) (Entry, error) {
	return u.move(KindPurchase, Side{Wallet: id}, Side{Account: sales}, m)
}

// Refund refunds a purchase.
func (u *UnitOfWork) Refund(id uuid.UUID, m Movement) (Entry, error) {
	return u.move(KindRefund, Side{Account: refunds}, Side{Wallet: id}, m)
}

// Transfer moves money from one wallet to another in the same currency.
func (u *UnitOfWork) Transfer(from, to uuid.UUID, m Movement) (Entry, error) {
	if from == to {
		return Entry{}, invalid("/to", "must be another wallet than the one that pays")
	}
	return u.move(KindTransfer, Side{Wallet: from}, Side{Wallet: to}, m)
}

// move moves money between two sides, one of which may be an account of the system.
func (u *UnitOfWork) move(kind Kind, from, to Side, m Movement) (Entry, error) {
	var accounts [2]*account // nil: the side is an account of the system
	for i, side := range [2]Side{from, to} {
		if side.Account == "" {
			a, err := u.account(side.Wallet)
			if err != nil {
				return Entry{}, err
			}
			accounts[i] = a
		}
	}
	payer, payee := accounts[0], accounts[1]
	if payer != nil && payee != nil && payer.Currency != payee.Currency {
		return Entry{}, invalid("/to", "has "+payee.Currency+", and the wallet that pays has "+payer.Currency)
	}
	first := cmp.Or(payer, payee)
	if err := u.admit(first, kind, m); err != nil {
		return Entry{}, err
	}
	if payee != nil && payee.Balance > maxBalance-m.Amount {
		return Entry{}, invalid("/amount", fmt.Sprintf("no wallet may have more than %d minor units", maxBalance))
	}
	if payer != nil {
		if err := u.afford(payer, m.Amount); err != nil {
			return Entry{}, err
		}
	}
	e := u.entry(kind, first.Currency, m)
	e.Debit, e.Credit = from, to
	u.post(e, leg{payer, -m.Amount, 0}, leg{payee, m.Amount, 0})
	return e, nil
}

// leg is what an entry does to one wallet.
type leg struct {
	*account
	deltaBalance, deltaHeld money.Amount
}

// entry makes an entry of a movement; the caller sets its sides.
func (u *UnitOfWork) entry(kind Kind, currency string, m Movement) Entry {
	e := Entry{ID: uuidv7.New(), Kind: kind, Amount: m.Amount, Currency: currency, Reference: m.Reference, Description: m.Description, CreatedAt: u.now, Metadata: m.Metadata,
		PurchaseID: m.PurchaseID, Actor: cmp.Or(m.Actor, job.System)}
	if e.Reference == (Reference{}) {
		e.Reference.Text = e.ID.String()
	}
	return e
}

// post adds an entry to the unit, with one event for each leg.
func (u *UnitOfWork) post(e Entry, legs ...leg) {
	u.references[e.Reference] = e.ID
	u.entries = append(u.entries, e)
	for _, l := range legs {
		if l.account == nil {
			continue // of an account of the system, which has no row
		}
		l.Balance += l.deltaBalance
		l.Held += l.deltaHeld
		l.Version++
		u.events = append(u.events, Event{Wallet: l.ID, Version: l.Version, DeltaBalance: l.deltaBalance, DeltaHeld: l.deltaHeld, Entry: e})
	}
}

// admit checks the rules for every movement, with any balance:
// first the request itself, then the version and the reference.
func (u *UnitOfWork) admit(a *account, kind Kind, m Movement) error {
	bound := maxAmount
	if kind == KindPurchase || kind == KindRefund {
		bound = maxBalance // many positions at once; the campaign bounds them
	}
	if m.Amount < 1 || m.Amount > bound {
		return invalid("/amount", fmt.Sprintf("must be 1 to %d minor units", bound))
	}
	return u.admitText(a, m)
}

// admitText is admit without the amount.
func (u *UnitOfWork) admitText(a *account, m Movement) error {
	if err := checkText("/description", m.Description, maxDescription); err != nil {
		return err
	}
	if err := checkText("/reference", m.Reference.Text, maxReference); err != nil {
		return err
	}
	if m.IfVersion != nil && *m.IfVersion != a.Version {
		return fault.New(fault.VersionMismatch, "the wallet has version %d, not %d", a.Version, *m.IfVersion)
	}
	if entry, used := u.references[m.Reference]; used {
		taken := fault.New(fault.StateConflict, "the reference %q was used for another movement", m.Reference.Text)
		taken.About = fault.About{Kind: fault.AboutEntry, ID: entry.String()}
		return taken
	}
	return nil
}

// afford checks that a wallet may spend an amount. If not, it ends the
// authorizations that are over and checks again.
func (u *UnitOfWork) afford(a *account, amount money.Amount) error {
	if a.Available() < amount {
		u.expireDue(a)
	}
	if a.Available() < amount {
		short := fault.New(fault.InsufficientFunds, "%s are available; %s are needed",
			money.Currency(a.Currency).Format(a.Available()), money.Currency(a.Currency).Format(amount))
		short.About = fault.About{Kind: fault.AboutWallet, ID: a.ID.String()}
		return short
	}
	return nil
}

// checkText refuses text that Postgres would refuse, so that one bad text does not
// fail all commands of the transaction. Text may be empty.
func checkText(pointer, text string, limit int) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return invalid(pointer, "must be UTF-8 without NUL")
	}
	if utf8.RuneCountInString(text) > limit {
		return invalid(pointer, fmt.Sprintf("must have at most %d characters", limit))
	}
	return nil
}

// check refuses an owner that no wallet can have.
func (o Owner) check() error {
	if o.ID == "" {
		return invalid("/owner_id", "must have at least 1 character")
	}
	if err := checkText("/owner_id", o.ID, maxOwner); err != nil {
		return err
	}
	if _, err := money.ParseCurrency(o.Currency); err != nil {
		return invalid("/currency", "must be an ISO 4217 code in capitals")
	}
	return nil
}

func invalid(pointer, detail string) error {
	return fault.Invalid(fault.Field{Pointer: pointer, Detail: detail})
}
