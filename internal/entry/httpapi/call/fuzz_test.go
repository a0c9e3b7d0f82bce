package call

import (
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

// For every header: an idempotency key is printable ASCII of a
// bounded length, the same with and without quotes.
func FuzzAnIdempotencyKeyIsPrintableAndOfBoundedLength(f *testing.F) {
	for _, text := range []string{"", `"`, `""`, `"a"`, `"a\"b\\"`, `a b`, "a\x00", "schlüssel", strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, `"\`, `\"`, "a, b", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := IdempotencyKey(text)
		switch code := fault.CodeOf(err); {
		case err != nil:
			if key != "" || code != fault.KeyInvalid && (code != fault.KeyMissing || text != "") {
				t.Errorf("%q is refused with %v and %q", text, err, key)
			}
			return
		case len(key) == 0 || len(key) > maxKey || !printable(key):
			t.Errorf("%q is the key %q", text, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := IdempotencyKey(quoted); err != nil || again != key {
			t.Errorf("%q in quotes is %q, %v", key, again, err)
		}
	})
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
