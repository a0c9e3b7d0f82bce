package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/store/inventory"
)

// positionsCache keeps copies of boards (the positions of a campaign): one read per
// campaign and second, however many clients poll, and one more for each version that
// somebody knows of.
type positionsCache struct {
	boards    *readcache.Cache[uuid.UUID, *board]
	changedAt func(uuid.UUID) time.Time // when it was last learned here that a campaign has changed
}

const positionsAge = time.Second

func newPositionsCache(db postgres.DB, timeout time.Duration, changedAt func(uuid.UUID) time.Time) *positionsCache {
	read := func(ctx context.Context, id uuid.UUID) (*board, error) {
		all, err := inventory.All(ctx, db, id)
		if err != nil {
			return nil, err
		}
		return newBoard(all)
	}
	size := func(b *board) int { return 4 * len(b.whole.Body) } // its rows, and what is encoded from them later
	return &positionsCache{boards: readcache.New(crowdReads(positionsAge, timeout), read, size), changedAt: changedAt}
}

// get returns a board that is a second old at most, and not from before a stream of this
// process knew of its last change. It is as new as version, unless the campaign has not
// reached that.
func (p *positionsCache) get(ctx context.Context, id uuid.UUID, version int64) (*board, error) {
	found, err := p.boards.Get(ctx, id, func(known readcache.Copy[*board]) bool {
		return known.Value.version >= version && known.ReadAt.After(p.changedAt(id))
	})
	return found.Value, err
}

// board is all positions of a campaign at one version, and what is sent of it. Each
// answer is encoded once for all who get it.
type board struct {
	version   int64
	positions []inventory.Position
	whole     response.Tagged // without owners

	mu      sync.Mutex
	changes map[int64]changes
	events  map[eventKey][]byte
}

// changes is what has changed on a board since a version, or the whole board.
type changes struct {
	answer response.Tagged
	n      int // positions
}

// eventKey is what an event of a board depends on.
type eventKey struct {
	progress string // the version of the rest of the event
	since    int64
}

const (
	answersKept    = 16    // of a board, of each kind; others are encoded again
	eventPositions = 2_000 // the most that an event brings, about 120 kB
)

func newBoard(all []inventory.Position) (*board, error) {
	b := &board{positions: all, changes: make(map[int64]changes), events: make(map[eventKey][]byte)}
	b.version = boardVersion(all)
	var err error
	b.whole, err = response.TagAt(b.version, boardJSON(b.version, all, call.Caller{}))
	return b, err
}

// since returns what has changed since a version. It is the whole board if that is most
// of it, or if the version is 0 or still to come.
func (b *board) since(version int64) (changes, error) {
	if version <= 0 || version > b.version {
		return changes{b.whole, len(b.positions)}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.changes[version]; ok {
		return known, nil
	}
	document := changesJSON(b.version, version, b.positions, call.Caller{})
	made := changes{b.whole, len(b.positions)}
	if document.Since != nil { // not the whole board
		answer, err := response.TagAt(b.version, document)
		if err != nil {
			return changes{}, err
		}
		made = changes{answer, len(document.Positions)}
	}
	if len(b.changes) < answersKept {
		b.changes[version] = made
	}
	return made, nil
}

// event returns the data of an event with what has changed since a version, as encode
// makes it from the board's document. If that is too much, encode gets nil, and isWhole is
// false.
func (b *board) event(progress string, version int64, encode func(document []byte) []byte) (data []byte, isWhole bool, err error) {
	changed, err := b.since(version)
	if err != nil {
		return nil, false, err
	}
	document := changed.answer.Body
	if isWhole = changed.n <= eventPositions; !isWhole {
		document = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := eventKey{progress, version}
	data, ok := b.events[key]
	if !ok {
		data = encode(document)
		if len(b.events) < answersKept {
			b.events[key] = data
		}
	}
	return data, isWhole, nil
}
