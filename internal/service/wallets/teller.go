package wallets

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// tries is how often a crowd is tried that loses races. Under the rows' locks it
// loses none but for a reference that two use at once.
const tries = 3

// Options are what a Teller can do without.
type Options struct {
	Locker   Locker        // nil: the rows' locks are enough
	LockWait time.Duration // how long a crowd waits for it; 0: 100 ms
}

// Teller carries out commands on wallets.
type Teller struct {
	db       pool
	options  Options
	lost     atomic.Int64
	unlocked atomic.Int64
}

// pool begins transactions, and reads outside of them.
type pool interface {
	postgres.DB
	postgres.Beginner
}

// New returns a Teller.
func New(db pool, options Options) *Teller {
	if options.LockWait == 0 {
		options.LockWait = 100 * time.Millisecond
	}
	return &Teller{db: db, options: options}
}

// Counts is what a Teller has met since it was made.
type Counts struct {
	Lost     int64 // races that were lost, and tried again
	Unlocked int64 // crowds that went on without the Redis lock they asked for
}

// Counts returns them.
func (t *Teller) Counts() Counts { return Counts{Lost: t.lost.Load(), Unlocked: t.unlocked.Load()} }

// Do carries out commands in the order in which they came, in one transaction,
// and returns one outcome for each: the answer that was recorded under its key
// now or earlier, or an Err that leaves the key free. An error of Do itself is
// for all: nothing was done, or, after a commit that failed, it is unknown.
func (t *Teller) Do(ctx context.Context, commands []Command) ([]job.Done, error) {
	defer t.lockHot(ctx, commands)()
	requests := make([]job.Request, len(commands))
	for i, c := range commands {
		requests[i] = c.Request
	}
	done, err := t.try(ctx, commands, requests, true)
	if postgres.IsLockTimeout(err) { // somebody sits on a wallet: those on other wallets need not wait with its own
		done, err = t.try(ctx, commands, requests, false)
	}
	if err != nil {
		return nil, fmt.Errorf("teller.Do: %w", err)
	}
	return done, nil
}

// try is Do, waiting for wallets or passing over those that somebody has locked:
// their commands leave their keys free.
func (t *Teller) try(ctx context.Context, commands []Command, requests []job.Request, wait bool) ([]job.Done, error) {
	var err error
	for range tries {
		var done []job.Done
		done, err = job.OnceEach(ctx, t.db, requests, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			return perform(ctx, tx, commands, fresh, wait)
		})
		if err == nil {
			failpoint.Hit("teller.committed", func() []string { return touched(commands) })
			return done, nil
		}
		if !wallet.Lost(err) {
			return nil, err
		}
		t.lost.Add(1)
	}
	return nil, fault.Wrap(fault.Unavailable, err, "too many others move this money; retry with the same Idempotency-Key")
}

// rowWait bounds how long a crowd waits for a wallet.
const rowWait = time.Second

// errBusy answers commands on a wallet that somebody else does not let go of.
var errBusy = fault.New(fault.Unavailable, "the wallet is busy; retry with the same Idempotency-Key")

// session is what the commands of one transaction share.
type session struct {
	book   *wallet.Book
	opened map[wallet.Owner]wallet.Created
}

// perform decides the fresh ones of the commands, in order, and writes what they come to.
func perform(ctx context.Context, tx pgx.Tx, commands []Command, fresh []int, wait bool) ([]job.Answer, error) {
	s := &session{}
	var err error
	if s.opened, err = open(ctx, tx, commands, fresh); err != nil {
		return nil, err
	}
	var want wallet.Wanted
	for _, i := range fresh {
		c := commands[i]
		want.Wallets = append(want.Wallets, c.Deed.wallets()...)
		c.Deed.want(&want, c.Request.Client)
	}
	for _, made := range s.opened {
		if made.Fresh {
			want.Wallets = append(want.Wallets, made.ID)
		}
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, rowWait.Milliseconds())); err != nil {
		return nil, fmt.Errorf("perform: %w", err)
	}
	if s.book, err = wallet.Open(ctx, tx, want, wait); err != nil {
		return nil, err
	}
	answers := make([]job.Answer, len(fresh))
	for at, i := range fresh {
		if err := s.belongs(commands[i]); err != nil {
			if errors.Is(err, wallet.ErrBusy) {
				err = errBusy
			}
			answers[at] = job.Answer{Refusal: err}
			continue
		}
		answers[at] = commands[i].Deed.do(s, commands[i].Request.Client)
		if errors.Is(answers[at].Refusal, wallet.ErrBusy) {
			answers[at].Refusal = errBusy
		}
	}
	if err := s.book.Write(ctx, tx); err != nil {
		return nil, err
	}
	failpoint.Hit("teller.written", func() []string { return touched(commands) })
	return answers, nil
}

// open makes the wallets that commands open. What a command says must be sound
// before that: a wallet that was made cannot be refused any more.
func open(ctx context.Context, tx pgx.Tx, commands []Command, fresh []int) (map[wallet.Owner]wallet.Created, error) {
	var owners []wallet.Owner
	for _, i := range fresh {
		d, ok := commands[i].Deed.(Open)
		if ok && d.check() == nil && owns(commands[i], d.Owner.ID) {
			owners = append(owners, d.Owner)
		}
	}
	if len(owners) == 0 {
		return nil, nil
	}
	return wallet.Create(ctx, tx, owners)
}

func owns(c Command, ownerID string) bool { return c.OwnerID == "" || c.OwnerID == ownerID }

// belongs refuses a command on somebody else's wallet like one on none.
func (s *session) belongs(c Command) error {
	if d, ok := c.Deed.(Open); ok {
		if !owns(c, d.Owner.ID) {
			return fault.New(fault.Forbidden, "a wallet can be opened for oneself only")
		}
		return nil
	}
	id := c.Deed.wallets()[0]
	w, err := s.book.Wallet(id)
	if err == nil && !owns(c, w.Owner.ID) {
		return fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return err
}

// touched names the wallets of commands.
func touched(commands []Command) []string {
	var names []string
	for _, c := range commands {
		for _, id := range c.Deed.wallets() {
			names = append(names, id.String())
		}
	}
	return names
}
