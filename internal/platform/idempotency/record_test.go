package idempotency

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"triprize/internal/testkit/property"
)

// records draws any record that can be: an answer may have any bytes, blanks included.
func records() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		return Record{
			State: rapid.SampledFrom([]State{Success, Failed}).Draw(t, "state"),
			Hash:  [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash")),
			Job:   uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "job")),
			Answer: rapid.OneOf(
				rapid.SliceOfN(rapid.Byte(), 1, 100),
				rapid.SampledFrom([][]byte{[]byte(" "), []byte(" a  b "), []byte("\n"), []byte(`{"id": "x"}`)}),
			).Draw(t, "answer"),
		}
	})
}

func equal(a, b Record) bool {
	return a.State == b.State && a.Hash == b.Hash && a.Job == b.Job && bytes.Equal(a.Answer, b.Answer)
}

func TestARecordReadsBackAsItWasWrittenUnlessItIsCutShort(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		r := records().Draw(t, "record")
		whole := r.encode()
		if got, ok := decode(whole); !ok || !equal(got, r) {
			t.Fatalf("%q reads as %+v, %v", whole, got, ok)
		}
		end := len(whole) - len(r.Answer) + 1
		if got, ok := decode(whole[:rapid.IntRange(0, end-1).Draw(t, "length")]); ok {
			t.Fatalf("it reads as %+v", got)
		}
	})
}

func TestWhateverReadsAsARecordIsWrittenAsTheSameRecord(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		value := records().Draw(t, "record").encode()
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			value[rapid.IntRange(0, len(value)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		got, ok := decode(value) // must not panic
		if !ok {
			return
		}
		if again, ok := decode(got.encode()); !ok || !equal(again, got) {
			t.Fatalf("%q reads as %+v, and that as %+v, %v", value, got, again, ok)
		}
	})
}

func TestGarbageIsNoRecord(t *testing.T) {
	t.Parallel()
	hash, job := strings.Repeat("A", 43), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	if _, ok := decode([]byte("SUCCESS " + hash + " " + job + " {}")); !ok {
		t.Fatal("a good record is refused: the test does not test")
	}
	for what, value := range map[string]string{
		"nothing":                    "",
		"blanks":                     "   ",
		"one word":                   "SUCCESS",
		"a word of another program":  "OK",
		"no job":                     "SUCCESS " + hash,
		"an unknown state":           "DONE " + hash + " " + job + " {}",
		"a state in small letters":   "success " + hash + " " + job + " {}",
		"no state":                   " " + hash + " " + job + " {}",
		"a short hash":               "SUCCESS " + hash[:42] + " " + job + " {}",
		"a long hash":                "SUCCESS " + hash + "A " + job + " {}",
		"a hash in another alphabet": "SUCCESS " + hash[:42] + "+ " + job + " {}",
		"a padded hash":              "SUCCESS " + hash + "= " + job + " {}",
		"a short job":                "SUCCESS " + hash + " " + job[:35] + " {}",
		"a job that is no UUID":      "SUCCESS " + hash + " " + strings.Repeat("x", 36) + " {}",
		"two blanks":                 "SUCCESS  " + hash + " " + job + " {}",
		"a state that is not final":  "IN_PROGRESS " + hash + " " + job + " {}",
		"no answer":                  "SUCCESS " + hash + " " + job,
		"an empty answer":            "SUCCESS " + hash + " " + job + " ",
		"a claim":                    "IN_PROGRESS worker-1",
	} {
		if got, ok := decode([]byte(value)); ok {
			t.Errorf("%s reads as %+v", what, got)
		}
	}
}

func TestPairsThatConcatenateEquallyHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		// A client's name is never empty and has none but these; a key may have anything.
		text := rapid.StringMatching(`[a-z0-9._-]{3,40}`).Draw(t, "text")
		i := rapid.IntRange(1, len(text)-1).Draw(t, "one cut")
		j := rapid.IntRange(1, len(text)-1).Filter(func(j int) bool { return j != i }).Draw(t, "another cut")
		a, b := Request{Client: text[:i], Key: text[i:]}, Request{Client: text[:j], Key: text[j:]}
		if requestKey("ns", a) == requestKey("ns", b) {
			t.Fatalf("%+v and %+v share a key", a, b)
		}
		if requestKey("ns", a) != requestKey("ns", Request{Client: text[:i], Key: text[i:]}) {
			t.Fatalf("%+v has two keys", a)
		}
		if requestKey("ns", a) == requestKey("other", a) {
			t.Fatalf("two namespaces share the key of %+v", a)
		}
	})
}
