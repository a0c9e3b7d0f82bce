package campaign

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
)

// ShapeOf returns the shape of a campaign as it is now, or a not-found Error.
func ShapeOf(ctx context.Context, db postgres.DB, id uuid.UUID) (shape.Shape, error) {
	found, err := readShapes(ctx, db, []uuid.UUID{id})
	form, ok := found[id]
	if err == nil && !ok {
		err = NotFound(id)
	}
	return form, err
}

// readShapes returns the shapes of the campaigns that exist.
func readShapes(ctx context.Context, db postgres.DB, ids []uuid.UUID) (map[uuid.UUID]shape.Shape, error) {
	var id uuid.UUID
	var layer shape.Layer
	layers := make(map[uuid.UUID][]shape.Layer, len(ids))
	err := postgres.Scan(ctx, db, func() {
		layers[id] = append(layers[id], layer)
		layer.Aisles = nil // the next row gets a slice of its own
	}, []any{&id, &layer.Positions, &layer.Label, &layer.Aisles}, `
		SELECT campaign_id, positions, coalesce(label, ''), nullif(aisles, '{}') FROM layers
		WHERE campaign_id = ANY($1) ORDER BY campaign_id, layer`, ids)
	if err != nil {
		return nil, fault.At(err, "campaign.readShapes")
	}
	found := make(map[uuid.UUID]shape.Shape, len(layers))
	for id, list := range layers {
		found[id] = shape.New(list)
	}
	return found, nil
}

// TermsCache caches what stays true of published campaigns. Goroutines may share it.
type TermsCache struct {
	loading singleflight.Group

	mu    sync.Mutex
	known *readcache.Weighed[uuid.UUID, CachedTerms]
}

// SaleTerms are what stays true of the sale of a published campaign. The shape never changes. The limit
// is only raised, so what is within it stays allowed.
type SaleTerms struct {
	Shape         shape.Shape
	PurchaseLimit *int // positions per user; nil: no limit
}

// CheckLimit returns a purchase-limit-exceeded Error when a user would have more
// positions than the limit: bought and held ones together.
func (t SaleTerms) CheckLimit(has, more int) error {
	if t.PurchaseLimit == nil || has+more <= *t.PurchaseLimit {
		return nil
	}
	return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and requests %d more", *t.PurchaseLimit, has, more)
}

// CachedTerms is what stays true of a published campaign.
type CachedTerms struct {
	SaleTerms
	IsDraft bool // it was never published: only operators may know of it
	Closed  bool // it never sells again
}

// Bounds of what a TermsCache has. A triangle of 30 layers needs a kilobyte, a hall of 1,000 rows
// with long labels 400.
const (
	maxCachedTerms = 10_000
	maxCachedBytes = 16 << 20
)

// NewTermsCache returns an empty TermsCache.
func NewTermsCache() *TermsCache {
	return &TermsCache{known: readcache.NewWeighed[uuid.UUID](maxCachedTerms, maxCachedBytes, func(f CachedTerms) int { return f.Shape.Bytes() })}
}

func (t *TermsCache) get(id uuid.UUID) (CachedTerms, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known.Get(id)
}

func (t *TermsCache) put(id uuid.UUID, terms CachedTerms) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.Put(id, terms)
}

// Of returns what is known of a campaign, or a not-found Error. Only the first request for
// it reads.
func (t *TermsCache) Of(ctx context.Context, db postgres.DB, id uuid.UUID) (CachedTerms, error) {
	if found, ok := t.get(id); ok {
		return found, nil
	}
	return t.Read(ctx, db, id)
}

// Read returns what is true of a campaign now. It does not cache a draft.
func (t *TermsCache) Read(ctx context.Context, db postgres.DB, id uuid.UUID) (CachedTerms, error) {
	found, err, _ := t.loading.Do(id.String(), func() (any, error) {
		c, err := Get(ctx, db, id)
		if err != nil {
			return CachedTerms{}, err
		}
		form, err := ShapeOf(ctx, db, id)
		found := CachedTerms{SaleTerms{form, c.PurchaseLimit}, c.PublishedAt == nil, c.State.Closed()}
		if err == nil && c.State != Pending {
			t.put(id, found)
		}
		return found, err
	})
	if err != nil {
		return CachedTerms{}, err
	}
	return found.(CachedTerms), nil //nolint:forcetypeassert // the function above returns no other
}

// Fill sets the shape of each status. It reads those that are not cached in one query, and
// caches those that were published when the status was read.
func (t *TermsCache) Fill(ctx context.Context, db postgres.DB, statuses map[uuid.UUID]*Snapshot) error {
	var unknown []uuid.UUID
	for id, status := range statuses {
		found, ok := t.get(id)
		if !ok {
			unknown = append(unknown, id)
		}
		status.Shape = found.Shape
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := readShapes(ctx, db, unknown)
	for id, form := range found {
		statuses[id].Shape = form
		if state := statuses[id].State; state != Pending && state != Cancelled { // a cancelled one may be a draft
			t.put(id, CachedTerms{SaleTerms: statuses[id].SaleTerms, Closed: state.Closed()})
		}
	}
	return err
}
