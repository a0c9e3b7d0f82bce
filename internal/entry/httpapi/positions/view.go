package positions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
)

// own is a position as its user sees it.
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
		all = append(all, own{at, p.Changed, document})
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
		all = append(all, own{at, math.MaxInt64, document})
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
			changed, size, rest = rest[0].changed, len(rest[0].document), rest[1:]
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
// Pieces of the board are not copied.
func (v *View) pieces() func() []byte {
	b, rest, i, isFirst, isOver := v.board, v.own, 0, true, false
	waiting := [][]byte{v.head}
	isOwn := func() bool { return len(rest) > 0 && rest[0].at == i }
	isShown := func() bool { return !isOwn() && (v.since == 0 || b.changed[i] > v.since) }
	show := func(document []byte) {
		if !isFirst {
			waiting = append(waiting, []byte{','})
		}
		waiting, isFirst = append(waiting, document), false
	}
	return func() []byte {
		for len(waiting) == 0 && i < len(b.changed) {
			if isOwn() {
				if v.since == 0 || rest[0].changed > v.since {
					show(rest[0].document)
				}
				rest = rest[1:]
				i++
				continue
			}
			from := i
			for i < len(b.changed) && isShown() {
				i++
			}
			if i > from {
				show(b.body[b.starts[from] : b.starts[i]-1])
			} else {
				i++ // neither own nor shown
			}
		}
		if len(waiting) == 0 {
			if isOver {
				return nil
			}
			isOver = true
			return []byte(tail)
		}
		piece := waiting[0]
		waiting = waiting[1:]
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
