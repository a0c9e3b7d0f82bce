package fairdraw

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"iter"
	"strconv"

	"github.com/google/uuid"
)

// LeafSize is the length in bytes of a leaf.
const LeafSize = 4 + 4 + 16 + sha256.Size

// NonceSize is the length in bytes of a purchase's nonce, known only to its owner.
const NonceSize = 16

// Position is one place; Layer and Column count from 1.
type Position struct {
	Layer  int `json:"layer"`
	Column int `json:"column"`
}

// Before orders positions by layer, then column: the order of lists and leaves.
func (p Position) Before(q Position) bool {
	return p.Layer < q.Layer || p.Layer == q.Layer && p.Column < q.Column
}

// All returns lines as [WriteProof] and [WriteList] take them.
func All(lines []SoldLine) iter.Seq2[SoldLine, error] {
	return func(yield func(SoldLine, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
	}
}

// Holder returns H(nonce || user_id): it shows nobody the buyer, and the buyer, who has the
// nonce, that the line is its own.
func Holder(nonce []byte, userID string) Hash {
	h := sha256.New()
	h.Write(nonce)
	h.Write([]byte(userID))
	return Hash(h.Sum(nil))
}

// SoldLine is a sold position as it is published: it does not show who the buyer is.
type SoldLine struct {
	Layer      int       `json:"layer"`
	Column     int       `json:"column"`
	PurchaseID uuid.UUID `json:"purchase_id"`
	Holder     Hash      `json:"holder"` // H(nonce || user_id)
}

// Position returns where the line stands.
func (l SoldLine) Position() Position { return Position{Layer: l.Layer, Column: l.Column} }

// Leaf returns layer (4) || column (4) || purchase_id (16) || holder (32), the bytes that
// stand in the tree.
func (l SoldLine) Leaf() []byte { return l.AppendLeaf(make([]byte, 0, LeafSize)) }

// AppendLeaf appends the leaf.
func (l SoldLine) AppendLeaf(leaf []byte) []byte {
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(l.Layer))  //nolint:gosec // Tree.Append bounds it
	leaf = binary.BigEndian.AppendUint32(leaf, uint32(l.Column)) //nolint:gosec // Tree.Append bounds it
	leaf = append(leaf, l.PurchaseID[:]...)
	return append(leaf, l.Holder[:]...)
}

// LineOf returns the line of a leaf, which has LeafSize bytes.
func LineOf(leaf []byte) SoldLine {
	return SoldLine{
		Layer: int(binary.BigEndian.Uint32(leaf)), Column: int(binary.BigEndian.Uint32(leaf[4:])),
		PurchaseID: uuid.UUID(leaf[8:24]), Holder: Hash(leaf[24:LeafSize]),
	}
}

// maxLine bounds one sold position in a document, in bytes. The longest takes 203.
const maxLine = 1024

// line reads one sold position.
func (s *scanner) line(i int) (SoldLine, error) {
	text, err := s.r.ReadSlice('}')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return SoldLine{}, ended(err)
	}
	if len(text) > maxLine {
		return SoldLine{}, malformed("sold", "at %d: is longer than %d bytes", i, maxLine)
	}
	line := parseLine(text)
	if s.spelled = line.appendTo(s.spelled[:0]); bytes.Equal(s.spelled, text) && line.checkValues() == nil {
		return line, nil
	}
	if err := decodeCanonical(text, new(SoldLine)); err != nil {
		return SoldLine{}, malformed("sold", "at %d: %s", i, err)
	}
	return SoldLine{}, malformed("sold", "at %d: has a number that is no integer from 0 to 2^53 − 1", i)
}

// parseLine reads what SoldLine.appendTo writes. Of any other text it returns a line that is not
// spelled like it.
func parseLine(text []byte) (l SoldLine) {
	column, rest, _ := bytes.Cut(bytes.TrimPrefix(text, []byte(`{"column":`)), []byte(`,"holder":"`))
	holder, rest, _ := bytes.Cut(rest, []byte(`","layer":`))
	layer, id, _ := bytes.Cut(rest, []byte(`,"purchase_id":"`))
	l.Column, _ = strconv.Atoi(string(column))
	l.Layer, _ = strconv.Atoi(string(layer))
	if len(holder) == hex.EncodedLen(len(l.Holder)) {
		_, _ = hex.Decode(l.Holder[:], holder)
	}
	l.PurchaseID, _ = uuid.ParseBytes(bytes.TrimSuffix(id, []byte(`"}`)))
	return l
}

func (l SoldLine) checkValues() error {
	if !isInteger(l.Layer, l.Column) {
		return malformed("sold", "cannot have %v: a number is no integer from 0 to 2^53 − 1", l.Position())
	}
	return nil
}

// appendTo appends the line as it stands in a proof document.
func (l SoldLine) appendTo(text []byte) []byte {
	text = append(text, `{"column":`...)
	text = strconv.AppendInt(text, int64(l.Column), 10)
	text = append(text, `,"holder":"`...)
	text = hex.AppendEncode(text, l.Holder[:])
	text = append(text, `","layer":`...)
	text = strconv.AppendInt(text, int64(l.Layer), 10)
	text = append(text, `,"purchase_id":"`...)
	text = appendUUID(text, l.PurchaseID)
	return append(text, `"}`...)
}

// appendUUID appends what id.String returns, without making a string.
func appendUUID(text []byte, id uuid.UUID) []byte {
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return text
}
