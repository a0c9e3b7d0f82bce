// Package positions encodes the board of a campaign (all its positions) once for all readers.
//
// A [Board] keeps the encoded document. Each reader gets pieces of it: the whole, or what has
// changed since a version ([Board.View]). A user's own positions lie over it. So an answer
// costs its own positions, however long the board is.
package positions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/gofiber/fiber/v2"

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

// New encodes the positions of a campaign, which are in the order of layer and column. Before
// publication there are none, and the version is 0. Only operators see owners.
func New(all []inventory.Position, withOwners bool) (*Board, error) {
	b := &Board{starts: make([]int, 0, len(all)+1), changed: make([]int64, len(all)),
		latest: make(map[string]int32), before: make([]int32, len(all)), events: make(map[eventKey]event)}
	if len(all) > 0 {
		b.Version = all[0].AsOf
	}
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

// own is a position as its user sees it; a comma is before its document.
type own struct {
	at       int
	changed  int64
	document []byte
}

// View is what one reader gets of a board: all of it, or what has changed since a version.
type View struct {
	Version   int64
	Positions int
	response.Tagged

	board *Board
	since int64 // 0: the whole board
	own   []own // by place
	head  []byte
	size  int
}

// View returns what has changed since a version. It is the whole board if that is most of
// it, or if the version is 0 or still to come. Nothing is encoded but the positions that
// the user has now; without a user there are none.
func (b *Board) View(since int64, user string, now []inventory.Position) (View, error) {
	v := View{Version: b.Version, board: b}
	var err error
	if user != "" {
		if v.own, err = b.ownOf(user, now); err != nil {
			return View{}, err
		}
	}
	if since > 0 && since <= b.Version {
		v.since = since
	}
	v.measure()
	if v.since > 0 && 2*v.Positions > len(b.changed) {
		v.since = 0
		v.measure()
	}
	var shown *int64
	if v.since > 0 {
		shown = &v.since
	}
	if v.head, err = b.head(shown); err != nil {
		return View{}, err
	}
	v.size += len(v.head) + max(v.Positions-1, 0) + len(tail)
	v.Tag = v.tag()
	return v, nil
}

// ownOf returns the positions that a user has now, and as available those that it had on
// the board and no longer has. No version tells of these: they count as changed.
func (b *Board) ownOf(user string, now []inventory.Position) ([]own, error) {
	all := make([]own, 0, len(now))
	mine := make(map[int]bool, len(now))
	for _, p := range now {
		at := b.index(p.Position)
		if at < 0 {
			continue
		}
		document, err := json.Marshal(Position(p, true))
		if err != nil {
			return nil, err
		}
		mine[at] = true
		all = append(all, own{at, p.Changed, append([]byte{','}, document...)})
	}
	last, ok := b.latest[user]
	for at := int(last); ok && at >= 0; at = int(b.before[at]) {
		if mine[at] {
			continue
		}
		var p contract.Position
		if err := json.Unmarshal(b.document(at), &p); err != nil {
			return nil, err
		}
		p.State = contract.PositionStateAvailable
		document, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		all = append(all, own{at, math.MaxInt64, append([]byte{','}, document...)})
	}
	slices.SortFunc(all, func(x, y own) int { return cmp.Compare(x.at, y.at) })
	return all, nil
}

// measure counts the positions of a view and the bytes of their documents.
func (v *View) measure() {
	v.Positions, v.size = 0, 0
	rest := v.own
	for i, changed := range v.board.changed {
		size := v.board.starts[i+1] - 1 - v.board.starts[i]
		if len(rest) > 0 && rest[0].at == i {
			changed, size, rest = rest[0].changed, len(rest[0].document)-1, rest[1:]
		}
		if changed > v.since || v.since == 0 {
			v.Positions++
			v.size += size
		}
	}
}

// tag is the entity tag of a view. It is made of what the view is made of, so that a
// reader that has the view already costs no encoding.
func (v *View) tag() string {
	if v.since == 0 && len(v.own) == 0 {
		return v.board.tag
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, v.board.tag)
	number := func(n int64) { _, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) } //nolint:gosec // only told apart
	number(v.since)
	for _, o := range v.own {
		number(int64(o.at))
		number(int64(len(o.document)))
		_, _ = sum.Write(o.document)
		number(min(max(o.changed-v.since, 0), 1)) // whether it is in the view
	}
	return response.TagOf(v.board.Version, [sha256.Size]byte(sum.Sum(nil)))
}

// pieces returns a function that returns the next piece of the document; nil at the end.
// Pieces of the board are not copied. Each position is sent with the comma before it, but the first.
func (v *View) pieces() func() []byte {
	b, rest, i, positions := v.board, v.own, 0, 0
	ends := [][]byte{v.head, []byte(tail)}
	return func() (piece []byte) {
		for len(ends) == 1 && piece == nil && i < len(b.changed) {
			isOwn := func() bool { return len(rest) > 0 && rest[0].at == i }
			from := i
			for i < len(b.changed) && !isOwn() && (v.since == 0 || b.changed[i] > v.since) {
				i++
			}
			if i > from {
				piece = b.body[b.starts[from]-1 : b.starts[i]-1]
				break
			}
			if isOwn() {
				if v.since == 0 || rest[0].changed > v.since {
					piece = rest[0].document
				}
				rest = rest[1:]
			}
			i++
		}
		switch {
		case piece == nil && len(ends) > 0:
			piece, ends = ends[0], ends[1:]
		case piece != nil:
			if positions++; positions == 1 {
				piece = piece[1:]
			}
		}
		return piece
	}
}

// Document returns the encoded view.
func (v *View) Document() []byte {
	if v.since == 0 && len(v.own) == 0 {
		return v.board.body
	}
	var document bytes.Buffer
	document.Grow(v.size)
	next := v.pieces()
	for piece := next(); piece != nil; piece = next() {
		document.Write(piece)
	}
	return document.Bytes()
}

// Answer is the answer with a view.
type Answer struct {
	View
	Sending *response.Sending
}

// Send implements operations.Answer.
func (a Answer) Send(c *fiber.Ctx) error {
	if a.Unchanged || a.size < response.LongAnswer {
		if !a.Unchanged {
			a.Body = a.Document()
		}
		return a.Tagged.Send(c)
	}
	if err := a.Tagged.Send(c); err != nil { // the head; the body follows
		return err
	}
	private := 0
	for _, o := range a.own {
		private += len(o.document)
	}
	a.Sending.Send(c.Status(http.StatusOK), response.Long{Size: a.size, Shared: a.board.body, Own: private, Retains: a.board.retains(), Pieces: a.pieces()})
	return nil
}
