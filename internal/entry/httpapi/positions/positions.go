// Package positions encodes the board of a campaign (all its positions) once for all readers.
//
// A [Board] keeps the encoded document. Each reader gets pieces of it: the whole, or what has
// changed since a version ([Board.View]). A user's own positions lie over it. So an answer
// costs its own positions, however long the board is.
package positions

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
)

// Board is all positions of a campaign at one version.
type Board struct {
	Version int64

	body    []byte
	tag     string           // of body
	starts  []int            // where each position begins in body; the last one: after the list
	changed []int64          // the version at which each position last changed
	layers  []layer          // by number
	latest  map[string]int32 // of each owner, its last position
	before  []int32          // for each position, the one before of the same owner; none: -1

	mu     sync.Mutex
	events map[eventKey]event
	kept   int // bytes of events
}

// layer is where the positions of a layer begin, and which column is the first.
type layer struct{ number, first, column, size int }

// Position is the document of a position. The owner, and why it is blocked, is in it only if
// it may be shown.
func Position(p inventory.Position, withOwner bool) contract.Position {
	d := contract.Position{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: int64(p.Price), State: contract.PositionState(p.State), Prize: p.Prize}
	if withOwner {
		d.UserID, d.ExpiresAt, d.BlockReason = p.UserID, p.ExpiresAt, p.BlockReason
	}
	return d
}

// versionOf is the version at which positions of a campaign were read. Before publication
// a campaign has none, and its version is 0.
func versionOf(all []inventory.Position) int64 {
	if len(all) == 0 {
		return 0
	}
	return all[0].AsOf
}

// New encodes the positions of a campaign, which are in the order of layer and column.
// Only operators see owners.
func New(all []inventory.Position, withOwners bool) (*Board, error) {
	b := &Board{Version: versionOf(all), starts: make([]int, 0, len(all)+1), changed: make([]int64, len(all)),
		latest: make(map[string]int32), before: make([]int32, len(all)), events: make(map[eventKey]event)}
	var body bytes.Buffer
	head, err := b.head(nil)
	if err != nil {
		return nil, err
	}
	body.Write(head)
	encoder := json.NewEncoder(&body)
	for i, p := range all {
		if i > 0 {
			body.WriteByte(',')
		}
		b.starts = append(b.starts, body.Len())
		if err := encoder.Encode(Position(p, withOwners)); err != nil {
			return nil, err
		}
		body.Truncate(body.Len() - 1) // the end of its line
		b.changed[i] = p.Changed
		if last := len(b.layers) - 1; last < 0 || b.layers[last].number != p.Layer {
			b.layers = append(b.layers, layer{p.Layer, i, p.Column, 1})
		} else if b.layers[last].size++; b.layers[last].column+i-b.layers[last].first != p.Column {
			return nil, fmt.Errorf("positions: layer %d has a gap before column %d", p.Layer, p.Column)
		}
		if b.before[i] = -1; p.UserID != nil {
			if last, ok := b.latest[*p.UserID]; ok {
				b.before[i] = last
			}
			b.latest[*p.UserID] = int32(i) // a campaign has less than a million
		}
	}
	b.starts = append(b.starts, body.Len()+1) // as if a comma followed
	body.WriteString(tail)
	b.body = bytes.Clone(body.Bytes())
	b.tag = response.TagOf(b.Version, sha256.Sum256(b.body))
	return b, nil
}

// Bytes is about how much memory a board needs.
func (b *Board) Bytes() int { return len(b.body) + b.retains() }

func (b *Board) retains() int {
	return b.eventBytes() + (8+8+4)*len(b.changed) + 64*len(b.latest)
}

const tail = "]}"

// head is the beginning of a document, up to its first position.
func (b *Board) head(since *int64) ([]byte, error) {
	empty, err := json.Marshal(contract.Board{BoardVersion: b.Version, Since: since, Positions: []contract.Position{}})
	return bytes.TrimSuffix(empty, []byte(tail)), err
}

// document is the document of a position, without its owner.
func (b *Board) document(i int) []byte { return b.body[b.starts[i] : b.starts[i+1]-1] }

// index returns where a position is; -1: the board has no such position.
func (b *Board) index(at shape.Position) int {
	for _, l := range b.layers {
		if l.number == at.Layer && at.Column >= l.column && at.Column < l.column+l.size {
			return l.first + at.Column - l.column
		}
	}
	return -1
}

const (
	eventsLeast    = 64 << 10 // bytes of the events that are kept of a board, or as many as the board has; others are encoded again
	eventPositions = 2_000    // the most that an event brings, about 120 kB
)

// eventBytes bounds the events that a board keeps.
func (b *Board) eventBytes() int { return max(eventsLeast, len(b.body)) }

// eventKey is what an event of a board depends on.
type eventKey struct {
	progress string // the version of the rest of the event
	since    int64
}

type event struct {
	data    []byte
	isWhole bool
}

// Event returns the data of an event with what has changed since a version, as encode
// makes it from the board's document. If that is too much, encode gets nil, and isWhole is
// false.
func (b *Board) Event(progress string, since int64, encode func(document []byte) []byte) (data []byte, isWhole bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := eventKey{progress, since}
	made, ok := b.events[key]
	if !ok {
		changed, err := b.View(since, "", nil)
		if err != nil {
			return nil, false, err
		}
		var document []byte
		if made.isWhole = changed.Positions <= eventPositions; made.isWhole {
			document = changed.Document()
		}
		made.data = encode(document)
		if b.kept+len(made.data) <= b.eventBytes() {
			b.events[key] = made
			b.kept += len(made.data)
		}
	}
	return made.data, made.isWhole, nil
}
