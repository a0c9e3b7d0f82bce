package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
)

// Command is one request with its action.
type Command struct {
	Request job.Request // its client is the scope of references
	Action  Action
	By      string       // the actor: role:client, and /user when one is signed in
	Who     access.Grant // other wallets do not exist for it
}

// Action is what a command does.
type Action struct {
	Kind          Kind          // credit, debit, transfer, authorize, capture or void; empty: open a wallet
	Owner         Owner         // of the wallet to open; without a client: at that of the request
	Wallet        uuid.UUID     // to be changed; of a transfer: the payer
	To            uuid.UUID     // the payee of a transfer
	Authorization uuid.UUID     // to be captured or voided
	TTL           time.Duration // of an authorization

	// The reference is optional, and unique among those of the client. The amount of an opening is the first
	// credit, or 0; that of a capture may be 0: all that is held; that of a void is ignored. The metadata of an
	// opening are those of the wallet.
	Movement
}

// movement returns the movement, with its actor and the scope of its reference.
func (a Action) movement(s *session, scope string) Movement {
	a.Movement.Actor = s.actor
	if a.Reference.Text != "" {
		a.Reference.Scope = scope
	}
	return a.Movement
}

// wallets returns the wallets of the action; the payer comes first.
func (a Action) wallets() []uuid.UUID {
	switch a.Kind {
	case "": // it opens one
		return nil
	case KindTransfer:
		return []uuid.UUID{a.Wallet, a.To}
	}
	return []uuid.UUID{a.Wallet}
}

// want adds to w what else the action needs to read.
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

// check refuses to open an invalid wallet. It runs before the wallet is created, because a
// wallet is never deleted.
func (a Action) check() error {
	if err := a.Owner.check(); err != nil {
		return err
	}
	if a.Amount < 0 || a.Amount > maxAmount {
		return fault.Invalid(fault.Field{Pointer: "/initial_balance", Detail: "must be 0 to 1000000000000 minor units"})
	}
	return checkDescription(a.Description)
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
		exists := fault.New(fault.WalletExists, "the owner already has a wallet in %s: %s", owner.Currency, made.ID)
		exists.About = fault.About{Kind: fault.AboutWallet, ID: made.ID.String()}
		return nil, exists
	}
	s.opened[owner] = Created{ID: made.ID} // for the next command the wallet exists
	if a.Amount > 0 {
		if _, err := s.unit.Credit(made.ID, Movement{Amount: a.Amount, Actor: s.actor, Description: a.Description}); err != nil {
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
	var authorization Authorization
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
		authorization, err = s.unit.Authorize(a.Wallet, m, a.TTL)
	case KindCapture:
		authorization, err = s.unit.Capture(a.Wallet, a.Authorization, m)
	case KindVoid:
		authorization, err = s.unit.Void(a.Wallet, a.Authorization, m)
	default:
		err = fmt.Errorf("wallet: no command makes entries of the kind %s", a.Kind)
	}
	return s.documents.Authorization(authorization), err
}

// wallet returns the body of a wallet as it is after this command, not after the batch.
func (s *session) wallet(id uuid.UUID, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	a, err := s.unit.account(id)
	if err != nil {
		return nil, err
	}
	return s.documents.Wallet(a.Wallet), nil
}

// attempts is how often a batch is tried when it loses a race. Under the row locks that
// only happens when two transactions use the same reference.
const attempts = 3

// Options of an Executor. The zero value is valid.
type Options struct {
	Retry   postgres.Pool // for commands whose wallet was found locked; nil: the same as for others
	RowWait time.Duration // how long a batch waits for a wallet that another transaction has locked; 0: 100 ms
}

// Documents make the bodies of answers.
type Documents struct {
	Wallet        func(Wallet) any
	Transfer      func(Entry) any
	Authorization func(Authorization) any
}

// Executor executes commands on wallets.
type Executor struct {
	db        postgres.Pool
	documents Documents
	options   Options
	lost      atomic.Int64
}

// NewExecutor returns an Executor.
func NewExecutor(db postgres.Pool, documents Documents, options Options) *Executor {
	if options.Retry == nil {
		options.Retry = db
	}
	options.RowWait = cmp.Or(options.RowWait, 100*time.Millisecond)
	return &Executor{db: db, documents: documents, options: options}
}

// Lost returns how many attempts have lost a race so far.
func (e *Executor) Lost() int64 { return e.lost.Load() }

// Do executes commands in order, in one transaction, and returns one outcome for
// each: the answer recorded under its key, now or earlier, or an Err that leaves the key
// free. An error of Do itself is for all commands: nothing was done, or, when the commit
// failed, the outcome is unknown.
func (e *Executor) Do(ctx context.Context, commands []Command) ([]job.Done, error) {
	ctx = postgres.As(ctx, postgres.TxWallet)
	done, err := e.try(ctx, e.db, commands, postgres.WaitForLocks)
	if postgres.IsLockTimeout(err) { // one wallet stays locked: the commands on the others go on
		done, err = e.try(ctx, e.db, commands, postgres.SkipLocked)
	}
	return done, fault.At(err, "wallet.Do")
}

// retry is Do for commands that have found a wallet locked. It waits for rowWait at most,
// and holds no lock meanwhile, neither on the other wallet of a transfer nor on a key. Then
// it executes the commands whose wallets are free; the others get errBusy.
func (e *Executor) retry(ctx context.Context, commands []Command, rowWait time.Duration) ([]job.Done, error) {
	ctx = postgres.As(ctx, postgres.TxWallet)
	if err := e.await(ctx, commands, rowWait); err != nil {
		return nil, fault.At(err, "wallet.Do")
	}
	done, err := e.try(ctx, e.options.Retry, commands, postgres.SkipLocked)
	return done, fault.At(err, "wallet.Do")
}

// try executes commands in a lock mode. With postgres.SkipLocked, commands on locked wallets are
// refused and leave their keys free.
func (e *Executor) try(ctx context.Context, db postgres.Beginner, commands []Command, mode postgres.LockMode) (_ []job.Done, err error) {
	requests := make([]job.Request, len(commands))
	for i, c := range commands {
		requests[i] = c.Request
	}
	ctx, spans := tracing.Batch(ctx, "wallets", len(commands), job.TracesOf(requests))
	defer func() { spans.End(err) }()
	for range attempts {
		var done []job.Done
		done, err = job.OnceEach(ctx, db, requests, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			todo := make([]Command, len(fresh))
			for at, i := range fresh {
				todo[at] = commands[i]
			}
			return e.execute(ctx, tx, todo, mode)
		})
		if err == nil {
			failpoint.Hit("wallets.committed", func() []string { return touched(commands) })
			return done, nil
		}
		if !Lost(err) {
			return nil, err
		}
		e.lost.Add(1)
	}
	return nil, fault.Wrap(fault.Unavailable, err, "too many concurrent changes; retry with the same Idempotency-Key")
}

// errBusy is the answer to commands on a wallet that another transaction has locked.
var errBusy = fault.New(fault.Unavailable, "the wallet is busy; retry with the same Idempotency-Key")

// session is what the commands of one transaction share.
type session struct {
	documents Documents
	unit      *UnitOfWork
	opened    map[Owner]Created
	actor     string // of the present command
}

// execute is the transaction: it locks wallets, decides commands in order, and writes
// the results.
func (e *Executor) execute(ctx context.Context, tx pgx.Tx, commands []Command, mode postgres.LockMode) ([]job.Answer, error) {
	s := &session{documents: e.documents}
	var err error
	if s.opened, err = openWallets(ctx, tx, commands); err != nil {
		return nil, err
	}
	if err := postgres.LimitLockWaits(ctx, tx, e.options.RowWait); err != nil {
		return nil, err
	}
	if s.unit, err = Open(ctx, tx, s.wanted(commands), mode); err != nil {
		return nil, err
	}
	answers := make([]job.Answer, len(commands))
	for i, c := range commands {
		answers[i] = s.answer(c)
	}
	if err := s.unit.Write(ctx, tx); err != nil {
		return nil, err
	}
	failpoint.Hit("wallets.written", func() []string { return touched(commands) })
	return answers, nil
}

// answer decides one command.
func (s *session) answer(c Command) job.Answer {
	s.actor = c.By
	err := s.check(c)
	var body any
	if err == nil {
		body, err = c.Action.do(s, c.Request.Client)
	}
	switch {
	case errors.Is(err, ErrBusy):
		return job.Answer{Refusal: errBusy}
	case err != nil:
		return job.Answer{Refusal: err}
	}
	return job.Answer{Body: body}
}

// wanted is everything that commands need to read.
func (s *session) wanted(commands []Command) (want Wanted) {
	want.Clients = []string{}
	for _, c := range commands {
		want.Wallets = append(want.Wallets, c.Action.wallets()...)
		c.Action.want(&want, c.Request.Client)
		if only := c.Who.Client(); only != nil && want.Clients != nil {
			want.Clients = append(want.Clients, *only)
		} else {
			want.Clients = nil
		}
	}
	for _, made := range s.opened {
		if made.Fresh {
			want.Wallets = append(want.Wallets, made.ID)
		}
	}
	return want
}

// openWallets creates the wallets that commands open. It skips commands that will be
// refused, because a wallet is never deleted.
func openWallets(ctx context.Context, tx pgx.Tx, commands []Command) (map[Owner]Created, error) {
	var openings []Opening
	for _, c := range commands {
		owner := c.Action.owner(c.Request.Client)
		if c.Action.opens() && c.Action.check() == nil && c.sees(owner) {
			openings = append(openings, Opening{Owner: owner, Metadata: c.Action.Metadata})
		}
	}
	if len(openings) == 0 {
		return nil, nil
	}
	return Create(ctx, tx, openings)
}

func (c Command) sees(o Owner) bool { return c.Who.Sees(o.Client, o.ID) }

// check refuses a command on wallets that its grant does not see, busy or not, as if they did
// not exist.
func (s *session) check(c Command) error {
	if c.Action.opens() && !c.sees(c.Action.owner(c.Request.Client)) {
		return fault.New(fault.Forbidden, "users can open wallets only for themselves")
	}
	for _, id := range c.Action.wallets() {
		if a := s.unit.accounts[id]; a == nil || !c.sees(a.Owner) {
			return fault.New(fault.NotFound, "there is no wallet %s", id)
		}
	}
	return nil
}

// touched returns the ids of the wallets of commands.
func touched(commands []Command) []string {
	var names []string
	for _, c := range commands {
		for _, id := range c.Action.wallets() {
			names = append(names, id.String())
		}
	}
	return names
}
