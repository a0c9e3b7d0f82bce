package call

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"triprize/internal/domain/fault"
)

// maxKey is the longest idempotency key, in characters.
const maxKey = 255

// IdempotencyKey returns the key of a request, bare or as a quoted structured-field string.
func IdempotencyKey(key string) (string, error) {
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

// Fingerprint is a hash of a request: operation, target and canonical body. Two
// requests with the same key must have the same. How a client writes its path or
// its JSON does not matter.
func Fingerprint(operation string, target []string, canonical []byte) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range append([]string{operation, string(canonical)}, target...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
