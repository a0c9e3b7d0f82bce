package problemdocs

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

func TestEveryCodeIsExplainedInWholeSentences(t *testing.T) {
	t.Parallel()
	said := make(map[string]fault.Code)
	for _, c := range fault.Codes() {
		e := Explain(c)
		paragraphs := append(slices.Clone(e.Remedy), e.Happened, e.Retry)
		for _, p := range paragraphs {
			if p == "" || p != strings.TrimSpace(p) || !strings.HasSuffix(p, ".") {
				t.Errorf("%s: not a whole sentence: %q", c, p)
			}
			if strings.Count(p, "`")%2 != 0 {
				t.Errorf("%s: a backquote has no partner: %q", c, p)
			}
			if strings.ContainsAny(p, "<>\n\t") || strings.Contains(p, "  ") {
				t.Errorf("%s: markup or loose spaces: %q", c, p)
			}
		}
		for _, text := range []string{e.Happened, strings.Join(e.Remedy, "\n")} {
			if other, taken := said[text]; taken {
				t.Errorf("%s and %s are explained alike: %q", c, other, text)
			}
			said[text] = c
		}
		if strings.HasSuffix(c.Title(), ".") {
			t.Errorf("%s: a title is no sentence: %q", c, c.Title())
		}
	}
	const unknown fault.Code = "made-up"
	if unknown.Known() || !reflect.DeepEqual(Explain(unknown), Explain(fault.InternalError)) {
		t.Errorf("an unknown code is explained by %+v", Explain(unknown))
	}
}

// A retry with the wrong key does a thing twice, or never: each explanation must say which.
func TestWhatMayBeRepeatedSaysWithWhichKey(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Codes() {
		e := Explain(c)
		switch c.Kind() {
		case fault.KindUnavailable, fault.KindLimited:
			if !strings.Contains(e.Retry, "the same `Idempotency-Key`") || !strings.Contains(e.Retry, "`Retry-After`") {
				t.Errorf("%s: after how long, and with the same key? %q", c, e.Retry)
			}
		case fault.KindInternal, fault.KindTimeout:
			if !strings.Contains(e.Retry, "the same `Idempotency-Key`") {
				t.Errorf("%s: with which key? %q", c, e.Retry)
			}
		case fault.KindConflict:
			if text := e.Retry + strings.Join(e.Remedy, "\n"); strings.Contains(text, "same key") || strings.Contains(text, "same `Idempotency-Key`") {
				t.Errorf("%s: a refusal is remembered under its key, so the same key cannot help", c)
			}
		}
	}
}
