package watch

import (
	"context"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Announcements is the Redis channel on which workers say which jobs are final.
// A message is the ids, 16 bytes each. It wakes waiters early and proves
// nothing: who hears it reads the job, and who misses it polls.
type Announcements struct {
	rdb     redis.UniversalClient
	channel string
}

// NewAnnouncements returns the channel of a namespace.
func NewAnnouncements(rdb redis.UniversalClient, namespace string) *Announcements {
	return &Announcements{rdb: rdb, channel: namespace + ":jobs-final"}
}

// Publish says, inside a pipeline of the caller's, that jobs are final.
func (a *Announcements) Publish(ctx context.Context, pipe redis.Pipeliner, ids []uuid.UUID) {
	message := make([]byte, 0, len(ids)*len(uuid.UUID{}))
	for _, id := range ids {
		message = append(message, id[:]...)
	}
	pipe.Publish(ctx, a.channel, message)
}

// parseAnnouncement reads the ids of a message; a torn one has none.
func parseAnnouncement(message string) []uuid.UUID {
	const size = len(uuid.UUID{})
	if len(message)%size != 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(message)/size)
	for ; len(message) > 0; message = message[size:] {
		ids = append(ids, uuid.UUID([]byte(message[:size])))
	}
	return ids
}
