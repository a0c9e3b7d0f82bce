package wallets

import (
	"sync"

	"github.com/google/uuid"
)

// lockedWallets knows the wallets that commands wait for because another transaction
// has them locked.
type lockedWallets struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]int // commands
}

// any tells whether a command needs one of these wallets.
func (l *lockedWallets) any(c Command) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range c.Action.wallets() {
		if l.waiting[id] > 0 {
			return true
		}
	}
	return false
}

// note notes that a command waits, until over is called. It does not know which of
// the command's wallets is locked.
func (l *lockedWallets) note(c Command) (over func()) {
	l.add(c, 1)
	return func() { l.add(c, -1) }
}

func (l *lockedWallets) add(c Command, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range c.Action.wallets() {
		if l.waiting[id] += n; l.waiting[id] == 0 {
			delete(l.waiting, id)
		}
	}
}
