package wallet

import (
	"cmp"
	"context"
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
	Request job.Request
	Action  Action
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

	// The reference is optional, and unique among those of the wallet's client; of a transfer, the payer's. The
	// amount of an opening is the first credit, or 0; that of a capture may be 0: all that is held; that of a void is ignored. The metadata of an
	// opening are those of the wallet.
	Movement
}

// scoped returns commands whose owners are of the client of the request, and whose references of that of the
// wallet: an operator's is another one.
func scoped(ctx context.Context, tx pgx.Tx, commands []Command, fresh []int) ([]Command, error) {
	todo := make([]Command, len(fresh))
	var wallets []uuid.UUID
	for at, i := range fresh {
		todo[at] = commands[i]
		a := &todo[at].Action
		a.Owner.Client = cmp.Or(a.Owner.Client, commands[i].Request.Client)
		if a.Reference.Text == "" {
			continue
		}
		if only := commands[i].Who.Client(); only != nil { // others' wallets do not exist for it
			a.Reference.Scope = *only
		} else {
			wallets = append(wallets, a.Wallet)
		}
	}
	if len(wallets) == 0 {
		return todo, nil
	}
	var id uuid.UUID
	var client string
	return todo, postgres.Scan(ctx, tx, func() {
		for at := range todo {
			if a := &todo[at].Action; a.Wallet == id && a.Reference.Text != "" {
				a.Reference.Scope = client
			}
		}
	}, []any{&id, &client}, `SELECT id, client FROM wallets WHERE id = ANY($1)`, wallets)
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

// check refuses to open an invalid wallet. It runs before the wallet is created, because a
// wallet is never deleted.
func (a Action) check() error {
	if err := a.Owner.check(); err != nil {
		return err
	}
	if a.Amount < 0 || a.Amount > maxAmount {
		return invalid("/initial_balance", "must be 0 to 1000000000000 minor units")
	}
	return checkText("/description", a.Description, maxDescription)
}

func (a Action) open(s *session) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	made := s.opened[a.Owner]
	if !made.Fresh {
		exists := fault.New(fault.WalletExists, "the owner already has a wallet in %s: %s", a.Owner.Currency, made.ID)
		exists.About = fault.About{Kind: fault.AboutWallet, ID: made.ID.String()}
		return nil, exists
	}
	s.opened[a.Owner] = CreateResult{ID: made.ID} // for the next command the wallet exists
	if a.Amount > 0 {
		if _, err := s.unit.Credit(made.ID, Movement{Amount: a.Amount, Actor: a.Actor, Description: a.Description}); err != nil {
			return nil, err
		}
	}
	return s.wallet(made.ID, nil)
}

// do decides the action and returns the answer's body.
func (a Action) do(s *session) (any, error) {
	var authorization Authorization
	var err error
	switch a.Kind {
	case "":
		return a.open(s)
	case KindCredit:
		_, err = s.unit.Credit(a.Wallet, a.Movement)
		return s.wallet(a.Wallet, err)
	case KindDebit:
		_, err = s.unit.Debit(a.Wallet, a.Movement)
		return s.wallet(a.Wallet, err)
	case KindTransfer:
		e, err := s.unit.Transfer(a.Wallet, a.To, a.Movement)
		return s.documents.Transfer(e), err
	case KindAuthorize:
		authorization, err = s.unit.Authorize(a.Wallet, a.Movement, a.TTL)
	case KindCapture:
		authorization, err = s.unit.Capture(a.Wallet, a.Authorization, a.Movement)
	case KindVoid:
		authorization, err = s.unit.Void(a.Wallet, a.Authorization, a.Movement)
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

// before returns what a command changes as it is before it, for the audit trail; nil: it makes something new.
func (s *session) before(a Action) (body any) {
	if _, known, err := s.unit.held(a.Wallet, a.Authorization); err == nil {
		return s.documents.Authorization(known.Authorization)
	} else if a.Kind == KindCredit || a.Kind == KindDebit {
		body, _ = s.wallet(a.Wallet, nil) // an unknown one is refused
	}
	return body
}

// attempts is how often a batch is tried when it loses a race. Under the row locks that
// only happens when two transactions use the same reference.
const attempts = 3

// rowWait is how long a batch waits for a wallet that another transaction has locked.
const rowWait = 100 * time.Millisecond

// Documents make the bodies of answers.
type Documents struct {
	Wallet        func(Wallet) any
	Transfer      func(Entry) any
	Authorization func(Authorization) any
}

// Executor executes commands on wallets.
type Executor struct {
	db, retry postgres.Pool
	documents Documents
	rowWait   time.Duration // tests set it
	lost      atomic.Int64
}

// NewExecutor returns an Executor. A [Batcher] retries commands on locked wallets with retry.
func NewExecutor(db, retry postgres.Pool, documents Documents) *Executor {
	return &Executor{db: db, retry: retry, documents: documents, rowWait: rowWait}
}

// Lost returns how many attempts have lost a race so far.
func (e *Executor) Lost() int64 { return e.lost.Load() }

// Do executes commands in order, in one transaction, and returns one outcome for
// each: the answer recorded under its key, now or earlier, or an Err that leaves the key
// free. An error of Do itself is for all commands: nothing was done, or, when the commit
// failed, the outcome is unknown.
func (e *Executor) Do(ctx context.Context, commands []Command) ([]job.Accepted, error) {
	done, err := e.try(ctx, e.db, commands, postgres.WaitForLocks)
	if postgres.IsLockTimeout(err) { // one wallet stays locked: the commands on the others go on
		return e.try(ctx, e.db, commands, postgres.SkipLocked)
	}
	return done, err
}

// try executes commands in a lock mode. With postgres.SkipLocked, commands on locked wallets are
// refused and leave their keys free.
func (e *Executor) try(ctx context.Context, db postgres.Pool, commands []Command, mode postgres.LockMode) (_ []job.Accepted, err error) {
	ctx = postgres.As(ctx, postgres.TxWallet)
	requests := make([]job.Request, len(commands))
	for i, c := range commands {
		requests[i] = c.Request
	}
	ctx, spans := tracing.Batch(ctx, "wallets", len(commands), job.TracesOf(requests))
	defer func() { spans.End(err) }()
	for range attempts {
		var done []job.Accepted
		done, err = job.OnceEach(ctx, db, requests, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			todo, err := scoped(ctx, tx, commands, fresh)
			if err != nil {
				return nil, err
			}
			return e.execute(ctx, tx, todo, mode)
		})
		if err == nil {
			failpoint.Hit("wallets.committed", func() []string { return touched(commands) })
			return done, nil
		}
		if !Lost(err) {
			return nil, fault.At(err, "wallet.Do")
		}
		e.lost.Add(1)
	}
	return nil, fault.Wrap(fault.Unavailable, err, "too many concurrent changes; retry with the same Idempotency-Key")
}

// session is what the commands of one transaction share.
type session struct {
	documents Documents
	unit      *UnitOfWork
	opened    map[Owner]CreateResult
}

// execute is the transaction: it locks wallets, decides commands in order, and writes
// the results.
func (e *Executor) execute(ctx context.Context, tx pgx.Tx, commands []Command, mode postgres.LockMode) ([]job.Answer, error) {
	s := &session{documents: e.documents}
	var err error
	if s.opened, err = openWallets(ctx, tx, commands); err != nil {
		return nil, err
	}
	if err := postgres.LimitLockWaits(ctx, tx, e.rowWait); err != nil {
		return nil, err
	}
	if s.unit, err = Open(ctx, tx, s.wanted(commands), mode); err != nil {
		return nil, err
	}
	answers := make([]job.Answer, len(commands))
	for i, c := range commands {
		err := s.check(c)
		if err == nil && c.Request.Actor != nil {
			answers[i].Before = s.before(c.Action)
		}
		if err == nil {
			answers[i].Body, err = c.Action.do(s)
		}
		answers[i].Refusal = err
	}
	if err := s.unit.Write(ctx, tx); err != nil {
		return nil, err
	}
	failpoint.Hit("wallets.written", func() []string { return touched(commands) })
	return answers, nil
}

// wanted is everything that commands need to read.
func (s *session) wanted(commands []Command) (want ReadSet) {
	want.Clients = []string{}
	for _, c := range commands {
		want.Wallets = append(want.Wallets, c.Action.wallets()...)
		if c.Action.Authorization != uuid.Nil {
			want.Authorizations = append(want.Authorizations, c.Action.Authorization)
		}
		if c.Action.Reference.Text != "" {
			want.References = append(want.References, c.Action.Reference)
		}
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
func openWallets(ctx context.Context, tx pgx.Tx, commands []Command) (map[Owner]CreateResult, error) {
	var openings []NewWallet
	for _, c := range commands {
		if c.Action.Kind == "" && c.Action.check() == nil && c.sees(c.Action.Owner) {
			openings = append(openings, NewWallet{Owner: c.Action.Owner, Metadata: c.Action.Metadata})
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
	if c.Action.Kind == "" && !c.sees(c.Action.Owner) {
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
