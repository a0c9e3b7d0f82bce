package wallets

import (
	"context"
	"slices"

	"github.com/google/uuid"
)

// lockHot takes the locks in Redis of the wallets that several of the commands touch,
// and returns how to release them. It goes on without when it cannot get them in time.
func (e *Executor) lockHot(ctx context.Context, commands []Command) (release func()) {
	names := hot(commands)
	if e.options.Acquire == nil || len(names) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.LockWait)
	defer cancel()
	release, err := e.options.Acquire(ctx, names...)
	if err != nil {
		e.unlocked.Add(1)
		return func() {}
	}
	return release
}

// hot returns the names of the locks of wallets that more than one command touches, in
// the order of their ids.
func hot(commands []Command) []string {
	count := make(map[uuid.UUID]int, len(commands))
	for _, c := range commands {
		for _, id := range c.Action.wallets() {
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
