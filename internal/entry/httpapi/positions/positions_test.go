package positions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/inventory"
)

// positions returns a board of so many layers of so many columns. Each position is owned by
// one of a few users, or by nobody.
func made(r *rand.Rand, version int64, layers, columns int) []inventory.Position {
	var all []inventory.Position
	for layer := range layers {
		for column := range columns {
			p := inventory.Position{Seat: shape.Seat{Position: shape.Position{Layer: layer + 1, Column: column + 1}, Number: len(all) + 1, Label: fmt.Sprintf(`Row "%d"<`, len(all))},
				Price: 100, State: inventory.Available, AsOf: version, Changed: r.Int64N(version + 1)}
			if user := r.IntN(4); user < 3 {
				p.State, p.UserID, p.ExpiresAt = inventory.Held, new(fmt.Sprintf("user%d", user)), new(time.Unix(r.Int64N(1000), 0).UTC())
			}
			all = append(all, p)
		}
	}
	return all
}

// expected is what a reader must get, without any sharing.
func expected(t *testing.T, older, now []inventory.Position, user string, version, since int64) []byte {
	t.Helper()
	current := make(map[shape.Position]inventory.Position)
	for _, p := range now {
		current[p.Position] = p
	}
	whole := make([]contract.Position, 0, len(older))
	changed := make([]contract.Position, 0, len(older))
	for _, p := range older {
		isOwn := user != "" && p.UserID != nil && *p.UserID == user
		if mine, ok := current[p.Position]; ok && user != "" {
			p, isOwn = mine, true
		} else if isOwn {
			p.State, p.UserID, p.ExpiresAt, p.Changed = inventory.Available, nil, nil, math.MaxInt64
		}
		whole = append(whole, Position(p, isOwn))
		if p.Changed > since {
			changed = append(changed, Position(p, isOwn))
		}
	}
	document := contract.Board{BoardVersion: version, Positions: whole}
	if since > 0 && since <= version && 2*len(changed) <= len(older) {
		document.Since, document.Positions = &since, changed
	}
	body, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func newBoard(t *testing.T, all []inventory.Position) *Board {
	t.Helper()
	b, err := New(all, false)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A view is the document that would be made for its reader alone, and its tag stands for it.
func TestAViewIsWhatItsReaderWouldGetAlone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		version := 1 + r.Int64N(20)
		older := made(r, version, r.IntN(4), 1+r.IntN(5))
		b := newBoard(t, older)
		documents := make(map[string]string) // by tag
		for range 12 {
			user, since := []string{"", "user0", "user1", "user9"}[r.IntN(4)], r.Int64N(version+2)
			var now []inventory.Position
			for _, p := range older {
				if user != "" && r.IntN(4) == 0 {
					p.State, p.UserID, p.Changed = inventory.Sold, &user, r.Int64N(version+5)
					now = append(now, p)
				}
			}
			v, err := b.View(since, user, now)
			if err != nil {
				t.Fatal(err)
			}
			want := expected(t, older, now, user, b.Version, since)
			if got := v.Document(); !bytes.Equal(got, want) {
				t.Fatalf("since %d, %s:\n got %s\nwant %s", since, user, got, want)
			}
			if v.size != len(want) {
				t.Fatalf("it says %d bytes, and has %d", v.size, len(want))
			}
			if other, ok := documents[v.Tag]; ok && other != string(want) {
				t.Fatalf("two documents have the tag %s:\n%s\n%s", v.Tag, other, want)
			}
			documents[v.Tag] = string(want)
			again, err := newBoard(t, older).View(since, user, now)
			if err != nil || again.Tag != v.Tag {
				t.Fatalf("another process says %s, this one %s (%v)", again.Tag, v.Tag, err)
			}
		}
	}
}

// What a user asks for costs its own positions, however long the board is.
func TestAUsersViewEncodesItsOwnPositionsOnly(t *testing.T) { //nolint:paralleltest // it counts allocations
	all := made(rand.New(rand.NewPCG(1, 2)), 7, 100, 100)
	b := newBoard(t, all)
	now := []inventory.Position{all[17]}
	now[0].UserID = new("somebody")
	measured := testing.AllocsPerRun(10, func() {
		v, err := b.View(0, "somebody", now)
		if err != nil {
			t.Error(err)
		}
		next := v.pieces()
		for piece := next(); piece != nil; piece = next() { //nolint:revive // it is sent
		}
	})
	if measured > 100 {
		t.Errorf("%v allocations for a board of %d positions", measured, len(all))
	}
}
