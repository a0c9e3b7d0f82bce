package httpapi

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
)

// maxKey is the longest idempotency key, in characters.
const maxKey = 255

// idempotencyKey returns the key of a request, bare or as a quoted structured-field string.
func idempotencyKey(key string) (string, error) {
	if key == "" {
		return "", fault.New(fault.KeyMissing, "send an Idempotency-Key header, for example a fresh UUID, and the same one when you retry")
	}
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : n-1])
	}
	if len(key) < 1 || len(key) > maxKey || strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return "", fault.New(fault.KeyInvalid, "an Idempotency-Key has 1 to %d printable ASCII characters", maxKey)
	}
	return key, nil
}

// fingerprint is a hash of a request: operation, target and canonical body. Two
// requests with the same key must have the same. How a client writes its path or
// its JSON does not matter.
func fingerprint(operation string, target []string, canonical []byte) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range append([]string{operation, string(canonical)}, target...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// defaultPage is the size of a page when the client does not say.
const defaultPage = 50

func pageSize(limit *int) int {
	if limit == nil {
		return defaultPage
	}
	return *limit
}

// nextCursor returns the cursor of the next page after one with n elements, or nil
// after the last page.
func nextCursor(n, limit int, last func() uuid.UUID) *uuid.UUID {
	if n < limit || n == 0 {
		return nil
	}
	id := last()
	return &id
}
