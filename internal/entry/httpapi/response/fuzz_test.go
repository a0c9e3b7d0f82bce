package response

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// For every header: the wait is none, or whole seconds, or the longest.
func FuzzAPreferredWaitIsBounded(f *testing.F) {
	for _, text := range []string{"", "wait", "wait=", "wait=1", "WAIT=30", `wait="5"`, "wait=-1", "wait=1e9", "wait=99999999999999999999", "respond-async, wait=2", "wait=0, wait=3", ",,=,", "wait = 4 ; a=b", "wait=4;until=final", `wait=4 ; UNTIL="Final"`, "until=final; wait=3", "\xff=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const longest = 30 * time.Second
		w := WaitIn(text, longest)
		if wait := w.Longest; wait < 0 || wait > longest || wait%time.Second != 0 || wait > 0 && !strings.Contains(strings.ToLower(text), "wait") {
			t.Errorf("%q asks for %s", text, wait)
		}
		if w.UntilFinal && (w.Longest == 0 || !strings.Contains(strings.ToLower(text), "final")) {
			t.Errorf("%q asks for the end", text)
		}
	})
}

// For every header: what a client already has is told from what it
// has not, and an answer that it has is never sent as unchanged to another tag.
func FuzzOnlyItsOwnTagMakesAnAnswerUnchanged(f *testing.F) {
	answer, err := Tag(map[string]int{"a": 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "*", answer.Tag, strings.TrimPrefix(answer.Tag, "W/"), `"a", ` + answer.Tag, answer.Tag + "x", `W/W/` + answer.Tag, `"`, ",,,", `"*"`, "* ", "\xff"} {
		f.Add(text)
	}
	opaque := strings.Trim(strings.TrimPrefix(answer.Tag, "W/"), `"`)
	f.Fuzz(func(t *testing.T, text string) {
		got := answer.Matched(&text)
		if got.Unchanged && !strings.Contains(text, opaque) && !strings.Contains(text, "*") {
			t.Errorf("%q is taken for %s", text, answer.Tag)
		}
		with := text + ", " + answer.Tag
		if !answer.Matched(&with).Unchanged {
			t.Errorf("%q does not match %s", with, answer.Tag)
		}
		if answer.Matched(nil).Unchanged || got.Tag != answer.Tag || !bytes.Equal(got.Body, answer.Body) {
			t.Errorf("%q changes the answer", text)
		}
	})
}
