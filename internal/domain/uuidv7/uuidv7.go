// Package uuidv7 makes ids of stored rows, which sort by time (UUIDs of version 7, RFC 9562).
package uuidv7

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// New returns a new id. It panics without a random source.
func New() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// MadeAt returns when an id was created, to the millisecond.
func MadeAt(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))) //nolint:gosec // 48 bits fit
}

// FirstAt returns an id that is not after any that is made at t, to the millisecond, or later: a bound for ranges.
func FirstAt(t time.Time) (id uuid.UUID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return id
}

// Compare orders ids ascending. Rows are locked in this order.
func Compare(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// Spread maps an id to a fixed number in [0, n), with n up to 256. The last byte of an id is random, so the numbers are
// evenly distributed.
func Spread(id uuid.UUID, n int) int { return int(id[len(id)-1]) % n }
