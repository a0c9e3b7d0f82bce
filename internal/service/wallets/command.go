package wallets

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// Command is one request with its action.
type Command struct {
	Request job.Request // its client is the scope of references
	Action  Action
	By      string       // who asks: role:client, and /user when one is signed in
	Who     access.Grant // it finds no other wallets
}

// Action is one of Open, Credit, Debit, Transfer, Authorize, Capture and Void.
type Action interface {
	// wallets returns the wallets of the action; the first is the one that pays, if one does.
	wallets() []uuid.UUID
	// want adds what else the action needs to read.
	want(w *wallet.Wanted, scope string)
	// do decides the action and returns the answer's body.
	do(s *session, scope string) (body any, err error)
}

// Open makes a wallet, with a first credit if it has an initial balance: of its client, or without
// one of that of the request.
type Open struct {
	wallet.Owner
	InitialBalance money.Amount
	Description    string
	Metadata       metadata.Map // of the wallet
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

// Authorize holds money in a wallet for at most TTL.
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

// Void gives back what an authorization holds; its amount is ignored.
type Void struct {
	Wallet, Authorization uuid.UUID
	Details
}

// Details are what all actions except Open have in common.
type Details struct {
	Amount      money.Amount
	Reference   string // optional; unique among those of the client
	Description string // optional
	Metadata    metadata.Map
	IfVersion   *int64 // refuse unless the first wallet of the action has this version
}

func (d Details) movement(s *session, scope string) wallet.Movement {
	m := wallet.Movement{Amount: d.Amount, Actor: s.by, Description: d.Description, Metadata: d.Metadata, IfVersion: d.IfVersion}
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
func (a Credit) wallets() []uuid.UUID    { return []uuid.UUID{a.Wallet} }
func (a Debit) wallets() []uuid.UUID     { return []uuid.UUID{a.Wallet} }
func (a Transfer) wallets() []uuid.UUID  { return []uuid.UUID{a.From, a.To} }
func (a Authorize) wallets() []uuid.UUID { return []uuid.UUID{a.Wallet} }
func (a Capture) wallets() []uuid.UUID   { return []uuid.UUID{a.Wallet} }
func (a Void) wallets() []uuid.UUID      { return []uuid.UUID{a.Wallet} }

func (Open) want(*wallet.Wanted, string) {}

func (a Capture) want(w *wallet.Wanted, scope string) {
	w.Authorizations = append(w.Authorizations, a.Authorization)
	a.Details.want(w, scope)
}

func (a Void) want(w *wallet.Wanted, scope string) {
	w.Authorizations = append(w.Authorizations, a.Authorization)
	a.Details.want(w, scope)
}

// check refuses an invalid Open. It runs before the wallet is made, because a wallet
// that is made cannot be refused.
func (a Open) check() error {
	if err := a.Owner.Check(); err != nil {
		return err
	}
	if a.InitialBalance < 0 || a.InitialBalance > wallet.MaxAmount {
		return fault.Invalid(fault.Field{Pointer: "/initial_balance", Detail: "must be 0 to 1000000000000 minor units"})
	}
	return wallet.CheckDescription(a.Description)
}

func (a Open) owner(client string) wallet.Owner {
	a.Client = cmp.Or(a.Client, client)
	return a.Owner
}

func (a Open) do(s *session, client string) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	a.Owner = a.owner(client)
	made := s.opened[a.Owner]
	if !made.Fresh {
		exists := fault.New(fault.WalletExists, "the owner has a wallet in %s already: %s", a.Currency, made.ID)
		exists.About = fault.About{Kind: fault.AboutWallet, ID: made.ID.String()}
		return nil, exists
	}
	s.opened[a.Owner] = wallet.Created{ID: made.ID} // for the next command the wallet exists
	if a.InitialBalance > 0 {
		if _, err := s.unit.Credit(made.ID, wallet.Movement{Amount: a.InitialBalance, Actor: s.by, Description: a.Description}); err != nil {
			return nil, err
		}
	}
	return s.wallet(made.ID, nil)
}

func (a Credit) do(s *session, scope string) (any, error) {
	_, err := s.unit.Credit(a.Wallet, a.movement(s, scope))
	return s.wallet(a.Wallet, err)
}

func (a Debit) do(s *session, scope string) (any, error) {
	_, err := s.unit.Debit(a.Wallet, a.movement(s, scope))
	return s.wallet(a.Wallet, err)
}

func (a Transfer) do(s *session, scope string) (any, error) {
	e, err := s.unit.Transfer(a.From, a.To, a.movement(s, scope))
	return s.documents.Transfer(e), err
}

func (a Authorize) do(s *session, scope string) (any, error) {
	made, err := s.unit.Authorize(a.Wallet, a.movement(s, scope), a.TTL)
	return s.documents.Authorization(made), err
}

func (a Capture) do(s *session, scope string) (any, error) {
	captured, _, err := s.unit.Capture(a.Wallet, a.Authorization, a.movement(s, scope))
	return s.documents.Authorization(captured), err
}

func (a Void) do(s *session, scope string) (any, error) {
	voided, err := s.unit.Void(a.Wallet, a.Authorization, a.movement(s, scope))
	return s.documents.Authorization(voided), err
}

// wallet returns the body of a wallet as it is after this command, not after the batch.
func (s *session) wallet(id uuid.UUID, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	w, err := s.unit.Wallet(id)
	return s.documents.Wallet(w), err
}
