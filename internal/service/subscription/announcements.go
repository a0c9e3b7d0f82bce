package subscription

import (
	"context"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Announcements is the channel in Redis on which workers and sweeps say which jobs are
// final, or have something new to say. A message is a list of ids, 16 bytes each. It only wakes waiters early: they
// read the job in Postgres, and poll in case they miss a message.
type Announcements struct {
	rdb     redis.UniversalClient
	channel string
}

// NewAnnouncements returns the channel of a namespace.
func NewAnnouncements(rdb redis.UniversalClient, namespace string) *Announcements {
	return &Announcements{rdb: rdb, channel: namespace + ":jobs-final"}
}

// Publish adds to the caller's pipeline a message that jobs are final or have changed.
func (a *Announcements) Publish(ctx context.Context, pipe redis.Pipeliner, ids []uuid.UUID) {
	message := make([]byte, 0, len(ids)*len(uuid.UUID{}))
	for _, id := range ids {
		message = append(message, id[:]...)
	}
	pipe.Publish(ctx, a.channel, message)
}

// parseAnnouncement returns the ids of a message, or none when its length is wrong.
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
