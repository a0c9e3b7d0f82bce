package campaign

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// Change is what a transaction adds to a campaign's counters.
type Change struct{ Reserved, Sold, Blocked int }

// Changes has the Change of every campaign in a transaction. A campaign whose
// positions change while its counters stay the same is in it too, with zeros.
type Changes map[uuid.UUID]Change

// Add adds to the change of a campaign.
func (c Changes) Add(id uuid.UUID, change Change) {
	now := c[id]
	c[id] = Change{now.Reserved + change.Reserved, now.Sold + change.Sold, now.Blocked + change.Blocked}
}

// Queue adds the changes to the counters, in one statement. The statement fails
// with postgres.ErrRows when a campaign is no longer active. Call Queue under
// the campaigns' locks, once in every transaction that changes positions.
func (c Changes) Queue(b *pgx.Batch) { c.queue(b, `c.state = 'active'`, "active campaigns") }

// QueueBack is Queue for transactions that give positions back, which goes on in
// campaigns that are cancelled. There a change must make no counter larger, so nothing is
// sold, held or reserved in them.
func (c Changes) QueueBack(b *pgx.Batch) {
	c.queue(b, `(c.state = 'active' OR c.state = 'cancelled' AND d.reserved <= 0 AND d.sold <= 0)`, "campaigns that may be changed")
}

func (c Changes) queue(b *pgx.Batch, where, what string) {
	if len(c) == 0 {
		return
	}
	ids := slices.SortedFunc(maps.Keys(c), uuidv7.Compare)
	reserved, sold, blocked := make([]int, len(ids)), make([]int, len(ids)), make([]int, len(ids))
	for i, id := range ids {
		reserved[i], sold[i], blocked[i] = c[id].Reserved, c[id].Sold, c[id].Blocked
	}
	b.Queue(`
		UPDATE campaigns c
		SET positions_reserved = c.positions_reserved + d.reserved, positions_sold = c.positions_sold + d.sold,
		    positions_blocked = c.positions_blocked + d.blocked, board_version = c.board_version + 1
		FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS d (id, reserved, sold, blocked)
		WHERE c.id = d.id AND `+where, ids, reserved, sold, blocked).Exec(postgres.Exactly(len(ids), what))
}
