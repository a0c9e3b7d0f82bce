package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// NotIn returns those of chosen positions that are not in a state, each with its place in the
// request and the state it is in. form is the campaign's. Call it under the campaign's lock.
func NotIn(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, form shape.Shape, chosen []shape.Position, state State) (others []fault.Field, err error) {
	ids := make([]PositionID, len(chosen))
	for i, p := range chosen {
		ids[i] = PositionID{campaignID, p}
	}
	found, err := Find(ctx, tx, ids)
	states := make(map[shape.Position]State, len(found))
	for _, f := range found {
		states[f.Position] = f.State
	}
	for i, p := range chosen {
		if states[p] != state {
			others = append(others, fault.Field{Pointer: fmt.Sprintf("/positions/%d", i), Detail: fmt.Sprintf("position %s is %s", form.Name(p), states[p])})
		}
	}
	return others, err
}

// QueueBlock keeps free positions from sale. An empty reason is none. It comes after
// campaign.Changes.
func QueueBlock(b *pgx.Batch, campaignID uuid.UUID, positions []shape.Position, reason string) {
	queueBlocking(b, campaignID, positions, Available, `state = 'blocked', block_reason = nullif($5, '')`, reason)
}

// QueueUnblock puts blocked positions on sale again. It comes after campaign.Changes.
func QueueUnblock(b *pgx.Batch, campaignID uuid.UUID, positions []shape.Position) {
	queueBlocking(b, campaignID, positions, Blocked, `state = 'available', block_reason = NULL`)
}

// queueBlocking changes positions that are in a state.
func queueBlocking(b *pgx.Batch, campaignID uuid.UUID, positions []shape.Position, state State, set string, args ...any) {
	layers, cols := make([]int, len(positions)), make([]int, len(positions))
	for i, p := range positions {
		layers[i], cols[i] = p.Layer, p.Column
	}
	b.Queue(`
		UPDATE positions p SET version = p.version + 1, board_version = `+counted+`, `+set+`
		FROM unnest($2::int[], $3::int[]) AS c (layer, col)
		WHERE p.campaign_id = $1 AND p.layer = c.layer AND p.col = c.col AND p.state = $4`,
		append([]any{campaignID, layers, cols, string(state)}, args...)...).Exec(postgres.Exactly(len(positions), string(state)+" positions"))
}
