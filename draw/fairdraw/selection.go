package fairdraw

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sort"

	"github.com/google/uuid"
)

// Entropy returns HMAC-SHA-256(key = secret, "triprize-draw/1 entropy" || 0x00 ||
// campaign_id || root || randomness); randomness is a beacon's 32 bytes, or empty.
func Entropy(secret []byte, campaignID uuid.UUID, root [sha256.Size]byte, randomness []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(Version + " entropy\x00"))
	mac.Write(campaignID[:])
	mac.Write(root[:])
	mac.Write(randomness)
	return [sha256.Size]byte(mac.Sum(nil))
}

// Stream is the sequence of 8-byte numbers that an entropy determines. Block
// i = 0, 1, … is HMAC-SHA-256(key = entropy, "triprize-draw/1 stream" || 0x00 ||
// i (8 bytes)), read as four numbers in order. The zero value is not usable.
type Stream struct {
	entropy [sha256.Size]byte
	next    uint64 // index of the next block
	block   []byte // the unread rest of the current one
}

// NewStream starts the stream of an entropy.
func NewStream(entropy [sha256.Size]byte) *Stream { return &Stream{entropy: entropy} }

// Uint64 returns the next number.
func (s *Stream) Uint64() uint64 {
	if len(s.block) == 0 {
		mac := hmac.New(sha256.New, s.entropy[:])
		mac.Write([]byte(Version + " stream\x00"))
		mac.Write(binary.BigEndian.AppendUint64(nil, s.next))
		s.block = mac.Sum(nil)
		s.next++
	}
	x := binary.BigEndian.Uint64(s.block)
	s.block = s.block[8:]
	return x
}

// Below returns an unbiased index in [0, n): the next number x with
// x < 2^64 − (2^64 mod n), modulo n. n must be positive.
func (s *Stream) Below(n uint64) uint64 { return below(n, math.MaxUint64, s.Uint64) }

// below returns an unbiased index in [0, n) from numbers that are 0 … last, each as likely:
// the uneven end is skipped, which would favour the small ones.
func below(n, last uint64, next func() uint64) uint64 {
	excess := (last%n + 1) % n // (last + 1) mod n, without leaving 64 bits
	for {
		if x := next(); x <= last-excess {
			return x % n
		}
	}
}

// Indexes yields indexes, each in [0, n) and as likely as any other there: a [Stream].
type Indexes interface {
	Below(n uint64) uint64
}

// Select picks the winners: for each prize in number order, the candidates are the sold
// positions of its layer that have not won, in column order, and the next index below their
// number picks one. A prize whose layer has none left is not awarded. sold must be sorted by
// layer, then column.
func Select(prizes []Prize, sold []SoldLine, indexes Indexes) []ProofWinner {
	layers := make(map[int]*candidates)
	winners := make([]ProofWinner, len(prizes))
	for i, prize := range prizes {
		of, ok := layers[prize.Layer]
		if !ok {
			of = newCandidates(inLayer(sold, prize.Layer))
			layers[prize.Layer] = of
		}
		winners[i] = ProofWinner{Prize: prize.Number, Name: prize.Name, Layer: prize.Layer}
		if of.left == 0 {
			winners[i].Awarded = new(bool) // false
			continue
		}
		line := of.take(int(indexes.Below(uint64(of.left)))) //nolint:gosec // below the length of a list
		winners[i].Column, winners[i].PurchaseID = &line.Column, &line.PurchaseID
	}
	return winners
}

// candidates are the sold positions of a layer, less those that have won. A layer can have
// half a million positions and as many prizes, so taking one costs log n steps: tree is a
// Fenwick tree over the positions that are left.
type candidates struct {
	sold []SoldLine
	left int
	tree []int32 // tree[i] counts those that are left among the i&-i positions up to the i-th; tree[0] is nothing
	top  int     // the largest power of two that is at most len(sold)
}

func newCandidates(sold []SoldLine) *candidates {
	c := &candidates{sold: sold, left: len(sold), tree: make([]int32, len(sold)+1), top: 1}
	for i := 1; i <= len(sold); i++ {
		c.tree[i] = int32(i & -i) //nolint:gosec // at most the length of a list
	}
	for 2*c.top <= len(sold) {
		c.top *= 2
	}
	return c
}

// take removes the i-th of those that are left, counted from 0, and returns it.
func (c *candidates) take(i int) *SoldLine {
	at, before := 0, i // how many positions are skipped, and how many of those that are left must be
	for step := c.top; step > 0; step /= 2 {
		if next := at + step; next <= len(c.sold) && int(c.tree[next]) <= before {
			at, before = next, before-int(c.tree[next])
		}
	}
	for k := at + 1; k <= len(c.sold); k += k & -k {
		c.tree[k]--
	}
	c.left--
	line := c.sold[at]
	return &line
}

// inLayer returns the part of a sorted list that lies in a layer.
func inLayer(sold []SoldLine, layer int) []SoldLine {
	begin := sort.Search(len(sold), func(i int) bool { return sold[i].Layer >= layer })
	end := sort.Search(len(sold), func(i int) bool { return sold[i].Layer > layer })
	return sold[begin:end]
}
