package wallets

import (
	"context"
	"slices"

	"github.com/google/uuid"
)

// Locker lends named locks that spare waiting and prove nothing.
type Locker interface {
	// Acquire takes all the locks, in the order of names, or none.
	Acquire(ctx context.Context, names ...string) (release func(), err error)
}

// lockHot asks for the locks of the wallets that several of the commands touch,
// and returns how to give them back. Without them the crowd waits in Postgres.
func (t *Teller) lockHot(ctx context.Context, commands []Command) (release func()) {
	names := hot(commands)
	if t.options.Locker == nil || len(names) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, t.options.LockWait)
	defer cancel()
	release, err := t.options.Locker.Acquire(ctx, names...)
	if err != nil {
		t.unlocked.Add(1)
		return func() {}
	}
	return release
}

// hot names the locks of the wallets that more than one command touches, in the
// order of their ids.
func hot(commands []Command) []string {
	count := make(map[uuid.UUID]int, len(commands))
	for _, c := range commands {
		for _, id := range c.Deed.wallets() {
			count[id]++
		}
	}
	var names []string
	for id, n := range count {
		if n > 1 {
			names = append(names, "wallet:"+id.String())
		}
	}
	slices.Sort(names)
	return names
}
