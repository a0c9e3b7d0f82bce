package campaign

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// ShapeOf returns the shape of a campaign as it is now, or a not-found Error.
func ShapeOf(ctx context.Context, db postgres.DB, id uuid.UUID) (shape.Shape, error) {
	found, err := readShapes(ctx, db, []uuid.UUID{id})
	if err != nil {
		return shape.Shape{}, err
	}
	form, ok := found[id]
	if !ok {
		return shape.Shape{}, fault.New(fault.NotFound, "there is no campaign %s", id)
	}
	return form, nil
}

// readShapes returns the shapes of the campaigns that exist.
func readShapes(ctx context.Context, db postgres.DB, ids []uuid.UUID) (map[uuid.UUID]shape.Shape, error) {
	var id uuid.UUID
	var positions []int
	var labels []string
	found := make(map[uuid.UUID]shape.Shape, len(ids))
	rows, err := db.Query(ctx, `
		SELECT campaign_id, array_agg(positions ORDER BY layer), array_agg(coalesce(label, '') ORDER BY layer)
		FROM layers WHERE campaign_id = ANY($1) GROUP BY campaign_id`, ids)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &positions, &labels}, func() error {
			layers := make([]shape.Layer, len(positions))
			for i := range layers {
				layers[i] = shape.Layer{Positions: positions[i], Label: labels[i]}
			}
			found[id] = shape.New(layers)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("campaign.readShapes: %w", err)
	}
	return found, nil
}

// Shapes remembers the shapes of published campaigns, which never change. Goroutines may
// share it.
type Shapes struct {
	known *lru.Cache[uuid.UUID, shape.Shape]
}

// shapesKnown bounds them: a shape has MaxLayers layers at most, of 50 bytes or so and a label.
const shapesKnown = 1000

// NewShapes returns a Shapes that knows none.
func NewShapes() *Shapes {
	known, _ := lru.New[uuid.UUID, shape.Shape](shapesKnown) // fails only for a size of 0
	return &Shapes{known: known}
}

// Fill sets the shape of each status. It reads those that it does not know in one query, and
// remembers those that were published when the status was read.
func (s *Shapes) Fill(ctx context.Context, db postgres.DB, statuses map[uuid.UUID]*Status) error {
	var unknown []uuid.UUID
	for id, status := range statuses {
		form, ok := s.known.Get(id)
		if !ok {
			unknown = append(unknown, id)
		}
		status.Shape = form
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := readShapes(ctx, db, unknown)
	for id, form := range found {
		statuses[id].Shape = form
		if statuses[id].State != Pending {
			s.known.Add(id, form)
		}
	}
	return err
}
