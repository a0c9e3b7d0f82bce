package wallets

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// Command is one request and what it asks for.
type Command struct {
	Request job.Request // its client is the scope of references
	Deed    Deed
	OwnerID string // if not empty, the wallet that is opened, debited or held from must be this owner's
}

// Deed is one of Open, Credit, Debit, Transfer, Authorize, Capture and Void.
type Deed interface {
	// wallets returns those it touches, the one whose owner must agree first.
	wallets() []uuid.UUID
	// want adds what else it has to be decided on.
	want(w *wallet.Wanted, scope string)
	do(s *session, scope string) job.Answer
}

// Open makes a wallet, with a first credit if an initial balance is given.
type Open struct {
	wallet.Owner
	InitialBalance int64 // minor units
	Description    string
}

// Credit adds money from outside to a wallet.
type Credit struct {
	Wallet uuid.UUID
	Details
}

// Debit pays money out of a wallet.
type Debit struct {
	Wallet uuid.UUID
	Details
}

// Transfer moves money between two wallets.
type Transfer struct {
	From, To uuid.UUID
	Details
}

// Authorize holds money in a wallet, at most for TTL.
type Authorize struct {
	Wallet uuid.UUID
	TTL    time.Duration
	Details
}

// Capture pays out money that an authorization holds; without an amount, all of it.
type Capture struct {
	Wallet, Authorization uuid.UUID
	Details
}

// Void gives back what an authorization holds; its amount is not looked at.
type Void struct {
	Wallet, Authorization uuid.UUID
	Details
}

// Details are what every command on a wallet can say.
type Details struct {
	Amount      int64  // minor units
	Reference   string // optional; unique among those of the client
	Description string // optional
	IfVersion   *int64 // refuse unless the wallet that is credited, debited or held from has this version
}

func (d Details) movement(scope string) wallet.Movement {
	m := wallet.Movement{Amount: d.Amount, Description: d.Description, IfVersion: d.IfVersion}
	if d.Reference != "" {
		m.Reference = wallet.Reference{Scope: scope, Text: d.Reference}
	}
	return m
}

func (d Details) want(w *wallet.Wanted, scope string) {
	if d.Reference != "" {
		w.References = append(w.References, wallet.Reference{Scope: scope, Text: d.Reference})
	}
}

func (Open) wallets() []uuid.UUID        { return nil }
func (d Credit) wallets() []uuid.UUID    { return []uuid.UUID{d.Wallet} }
func (d Debit) wallets() []uuid.UUID     { return []uuid.UUID{d.Wallet} }
func (d Transfer) wallets() []uuid.UUID  { return []uuid.UUID{d.From, d.To} }
func (d Authorize) wallets() []uuid.UUID { return []uuid.UUID{d.Wallet} }
func (d Capture) wallets() []uuid.UUID   { return []uuid.UUID{d.Wallet} }
func (d Void) wallets() []uuid.UUID      { return []uuid.UUID{d.Wallet} }

func (Open) want(*wallet.Wanted, string) {}

func (d Capture) want(w *wallet.Wanted, scope string) {
	w.Authorizations = append(w.Authorizations, d.Authorization)
	d.Details.want(w, scope)
}

func (d Void) want(w *wallet.Wanted, scope string) {
	w.Authorizations = append(w.Authorizations, d.Authorization)
	d.Details.want(w, scope)
}

// check refuses what no wallet could be opened with; the wallet is made before
// anything else is decided.
func (d Open) check() error {
	if err := d.Owner.Check(); err != nil {
		return err
	}
	if d.InitialBalance < 0 || d.InitialBalance > wallet.MaxAmount {
		return fault.Invalid(fault.Field{Pointer: "/initial_balance", Detail: "must be 0 to 1000000000000 minor units"})
	}
	return wallet.CheckDescription(d.Description)
}

func (d Open) do(s *session, _ string) job.Answer {
	if err := d.check(); err != nil {
		return job.Answer{Refusal: err}
	}
	made := s.opened[d.Owner]
	if !made.Fresh {
		exists := fault.New(fault.StateConflict, "the owner has a wallet in %s already: %s", d.Currency, made.ID)
		exists.About = made.ID.String()
		return job.Answer{Refusal: exists}
	}
	s.opened[d.Owner] = wallet.Created{ID: made.ID} // for the next one it is there already
	if d.InitialBalance > 0 {
		if _, err := s.book.Credit(made.ID, wallet.Movement{Amount: d.InitialBalance, Description: d.Description}); err != nil {
			return job.Answer{Refusal: err}
		}
	}
	return s.wallet(http.StatusCreated, made.ID, nil)
}

func (d Credit) do(s *session, scope string) job.Answer {
	_, err := s.book.Credit(d.Wallet, d.movement(scope))
	return s.wallet(http.StatusOK, d.Wallet, err)
}

func (d Debit) do(s *session, scope string) job.Answer {
	_, err := s.book.Debit(d.Wallet, d.movement(scope))
	return s.wallet(http.StatusOK, d.Wallet, err)
}

func (d Transfer) do(s *session, scope string) job.Answer {
	e, err := s.book.Transfer(d.From, d.To, d.movement(scope))
	return answer(http.StatusCreated, transferOf(e), err)
}

func (d Authorize) do(s *session, scope string) job.Answer {
	a, err := s.book.Authorize(d.Wallet, d.movement(scope), d.TTL)
	return answer(http.StatusCreated, AuthorizationOf(a), err)
}

func (d Capture) do(s *session, scope string) job.Answer {
	a, _, err := s.book.Capture(d.Wallet, d.Authorization, d.movement(scope))
	return answer(http.StatusOK, AuthorizationOf(a), err)
}

func (d Void) do(s *session, scope string) job.Answer {
	a, err := s.book.Void(d.Wallet, d.Authorization, d.movement(scope))
	return answer(http.StatusOK, AuthorizationOf(a), err)
}
