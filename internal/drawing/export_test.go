package drawing

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// Reseal seals the secret of a campaign, which was read as sealed, and returns how many it has replaced.
func Reseal(ctx context.Context, db postgres.DB, keys keyring.Keyring, id uuid.UUID, sealed []byte) (int, error) {
	var r Rotation
	err := r.rotate(ctx, db, keys, []sealedSecret{{id, sealed}})
	return r.Resealed, err
}

// SetClock sets the clock that tells how long questions take and relays are away.
func (d *Drawer) SetClock(now func() time.Time) { d.questions.now = now }

// KnownAway counts the chains whose relays are away.
func (d *Drawer) KnownAway() int {
	d.questions.mu.Lock()
	defer d.questions.mu.Unlock()
	return len(d.questions.away)
}
