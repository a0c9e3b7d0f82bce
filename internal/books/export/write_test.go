package export

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// Wherever a spreadsheet splits a text, none of its cells is a formula.
func TestNoPartOfATextIsAFormula(t *testing.T) {
	t.Parallel()
	asFormula := regexp.MustCompile(`^[ "\p{Z}\p{C}\p{M}\x{3164}]*[=+\-@%|＝＋－＠﹦﹢﹣﹫]`)
	written := func(member any) string { return cell(reflect.ValueOf(member)) }
	for _, text := range []string{"=1+1", "a;=1+1;b", "a,+1", "a\t@SUM(A1)", `a; "=1"`, ";=1;;-1", "a|=1", "a\n=1", "＝1", "a;;=1", "a; =1", "a||=1", "|=1", "| |=1", "x\n\n=1", "a;\t=1",
		"\u200b=1", "\ufeff=1", "\u00a0=1", "a;\u200b\u00a0\ufeff=1", "\u2060+1", "\u202e@SUM(A1)", "\u3000-1", "\u034f=1", "\u3164=1", "\ufe0f=1", "\u0001=1", "\u00ad=1",
		"﹦1", "﹢1", "﹣1", "﹫SUM(A1)", "\u200b﹦1"} {
		for _, cell := range []string{written(text), written(&text), written(labels{"a", text}), written([]string{text, "a"}), written(map[string]string{"a": text, text: "b"}),
			written([]part{{By: text, Reason: text}})} {
			for _, separator := range []string{",", ";", "\t", "|", "\n"} {
				for part := range strings.SplitSeq(cell, separator) {
					if asFormula.MatchString(part) {
						t.Errorf("%q is written as %q, with the formula %q", text, cell, part)
					}
				}
			}
		}
	}
	for _, text := range []string{"", "mina", "order, \"1\"", "a;b", "1-1", "a=b", "\u00a0a", "\ufeffmina", "é=1"} {
		if got := written(text); got != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
}
