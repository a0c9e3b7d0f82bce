package wallet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
)

// Command is one request with its action.
type Command struct {
	Request job.Request // its client is the scope of references
	Action  Action
	By      string       // who asks: role:client, and /user when one is signed in
	Who     access.Grant // it finds no other wallets
}

// Action is what a command does.
type Action struct {
	Kind          Kind          // credit, debit, transfer, authorize, capture or void; empty: it opens a wallet
	Owner         Owner         // of the wallet that it opens: at this client, or without one at that of the request
	Wallet        uuid.UUID     // that it changes; of a transfer: that pays
	To            uuid.UUID     // the wallet that a transfer pays to
	Authorization uuid.UUID     // that it captures or voids
	TTL           time.Duration // the most that an authorization lasts

	// Its reference is optional, and unique among those of the client. Its amount is also the first credit of a
	// wallet that is opened, or 0; that of a capture may be 0: all that is held; that of a void is ignored. Its
	// metadata are also those of a wallet that is opened.
	Movement
}

// movement is that of the action: its reference is one of the client's.
func (a Action) movement(s *session, scope string) Movement {
	a.Movement.Actor = s.by
	if a.Reference.Text != "" {
		a.Reference.Scope = scope
	}
	return a.Movement
}

// wallets returns the wallets of the action; the first is the one that pays, if one does.
func (a Action) wallets() []uuid.UUID {
	switch a.Kind {
	case "": // it opens one
		return nil
	case KindTransfer:
		return []uuid.UUID{a.Wallet, a.To}
	}
	return []uuid.UUID{a.Wallet}
}

// want adds what else the action needs to read.
func (a Action) want(w *Wanted, scope string) {
	if a.Authorization != uuid.Nil {
		w.Authorizations = append(w.Authorizations, a.Authorization)
	}
	if a.Reference.Text != "" {
		w.References = append(w.References, Reference{Scope: scope, Text: a.Reference.Text})
	}
}

// opens reports whether the action opens a wallet.
func (a Action) opens() bool { return a.Kind == "" }

// check refuses to open an invalid wallet. It runs before the wallet is made, because a wallet
// that is made cannot be refused.
func (a Action) check() error {
	if err := a.Owner.Check(); err != nil {
		return err
	}
	if a.Amount < 0 || a.Amount > MaxAmount {
		return fault.Invalid(fault.Field{Pointer: "/initial_balance", Detail: "must be 0 to 1000000000000 minor units"})
	}
	return CheckDescription(a.Description)
}

func (a Action) owner(client string) Owner {
	a.Owner.Client = cmp.Or(a.Owner.Client, client)
	return a.Owner
}

func (a Action) open(s *session, client string) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	owner := a.owner(client)
	made := s.opened[owner]
	if !made.Fresh {
		exists := fault.New(fault.WalletExists, "the owner has a wallet in %s already: %s", owner.Currency, made.ID)
		exists.About = fault.About{Kind: fault.AboutWallet, ID: made.ID.String()}
		return nil, exists
	}
	s.opened[owner] = Created{ID: made.ID} // for the next command the wallet exists
	if a.Amount > 0 {
		if _, err := s.unit.Credit(made.ID, Movement{Amount: a.Amount, Actor: s.by, Description: a.Description}); err != nil {
			return nil, err
		}
	}
	return s.wallet(made.ID, nil)
}

// do decides the action and returns the answer's body.
func (a Action) do(s *session, scope string) (any, error) {
	if a.opens() {
		return a.open(s, scope)
	}
	var held Authorization
	var err error
	switch m := a.movement(s, scope); a.Kind {
	case KindCredit:
		_, err = s.unit.Credit(a.Wallet, m)
		return s.wallet(a.Wallet, err)
	case KindDebit:
		_, err = s.unit.Debit(a.Wallet, m)
		return s.wallet(a.Wallet, err)
	case KindTransfer:
		e, err := s.unit.Transfer(a.Wallet, a.To, m)
		return s.documents.Transfer(e), err
	case KindAuthorize:
		held, err = s.unit.Authorize(a.Wallet, m, a.TTL)
	case KindCapture:
		held, err = s.unit.Capture(a.Wallet, a.Authorization, m)
	case KindVoid:
		held, err = s.unit.Void(a.Wallet, a.Authorization, m)
	default:
		err = fmt.Errorf("wallets: no command makes entries of the kind %s", a.Kind)
	}
	return s.documents.Authorization(held), err
}

// wallet returns the body of a wallet as it is after this command, not after the batch.
func (s *session) wallet(id uuid.UUID, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	w, err := s.unit.Wallet(id)
	return s.documents.Wallet(w), err
}
