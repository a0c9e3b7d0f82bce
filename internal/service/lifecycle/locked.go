package lifecycle

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
)

// lockerTimeout bounds the search for the session that has locked a campaign.
const lockerTimeout = time.Second

// persist does a change again and again while its campaign stays locked, until ctx ends. Then
// its error names the session that has locked the campaign: only operators get it.
func (s *Service) persist(ctx context.Context, id uuid.UUID, do func() error) error {
	err := postgres.Persist(ctx, do)
	if ctx.Err() == nil || !postgres.IsTransient(err) {
		return err
	}
	search, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockerTimeout)
	defer cancel()
	locker, unknown := campaign.FindLocker(search, s.db, id)
	if unknown != nil || locker.PID == 0 && !postgres.IsLockTimeout(err) {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the campaign stays locked by "+locker.String()+"; end its transaction, or try again with the same Idempotency-Key")
}
