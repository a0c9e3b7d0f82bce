package wallets_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"triprize/internal/service/wallets"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// locks says what it was asked for.
type locks struct {
	mu       sync.Mutex
	asked    []string
	held     int
	fails    error
	released int
}

func (l *locks) acquire(_ context.Context, names ...string) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, names...)
	if l.fails != nil {
		return nil, l.fails
	}
	l.held++
	return func() { l.mu.Lock(); defer l.mu.Unlock(); l.released++ }, nil
}

func TestALockIsAskedForHotWalletsOnlyAndProvesNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	plain := newExecutor(db)
	a, b, c := made(t, plain, 100), made(t, plain, 100), made(t, plain, 100)
	for _, fails := range []error{nil, errors.New("Redis is away")} {
		l := &locks{fails: fails}
		at := wallets.NewExecutor(db, documents, wallets.Options{Acquire: l.acquire})
		do(t, at, command(wallets.Transfer{From: c, To: a, Details: amount(1)}), command(wallets.Transfer{From: a, To: b, Details: amount(1)}),
			command(wallets.Transfer{From: b, To: a, Details: amount(1)}))
		want := []string{"wallet:" + a.String(), "wallet:" + b.String()}
		slices.SortFunc(want, strings.Compare)
		if !slices.Equal(l.asked, want) || l.held != l.released {
			t.Errorf("asked for %v, want %v; %d held, %d released", l.asked, want, l.held, l.released)
		}
		if counts := at.Counts(); (counts.Unlocked == 1) != (fails != nil) {
			t.Errorf("counts %+v", counts)
		}
	}
	l := &locks{}
	one(t, wallets.NewExecutor(db, documents, wallets.Options{Acquire: l.acquire}), wallets.Transfer{From: a, To: b, Details: amount(1)})
	if len(l.asked) != 0 {
		t.Errorf("for wallets that one command touches it asked for %v", l.asked)
	}
	fixture.Sound(t, db)
}
