package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2/expirable"
	"golang.org/x/sync/singleflight"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
)

// boards keeps copies of boards for crowds that poll: one read per campaign and
// second, however many ask.
type boards struct {
	db      postgres.DB
	copies  *lru.LRU[uuid.UUID, *boardCopy]
	loading singleflight.Group
}

// boardCopy is a board as it was less than a second ago.
type boardCopy struct {
	positions []board.Position
	public    taggedAnswer // for those who see no owners
}

const (
	boardAge    = time.Second
	boardCopies = 256 // of about 100 kB each for the largest triangles by default
)

func newBoards(db postgres.DB) *boards {
	return &boards{db: db, copies: lru.NewLRU[uuid.UUID, *boardCopy](boardCopies, nil, boardAge)}
}

// get returns a copy of a campaign's board.
func (b *boards) get(ctx context.Context, id uuid.UUID) (*boardCopy, error) {
	if found, ok := b.copies.Get(id); ok {
		return found, nil
	}
	loaded, err, _ := b.loading.Do(id.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // others wait for it too
		defer cancel()
		all, err := board.All(ctx, b.db, id)
		if err != nil {
			return nil, err
		}
		fresh := &boardCopy{positions: all}
		if fresh.public, err = tagged(boardJSON(all, caller{}), nil); err != nil {
			return nil, err
		}
		b.copies.Add(id, fresh)
		return fresh, nil
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*boardCopy), nil //nolint:forcetypeassert // it is what the function above returns
}
