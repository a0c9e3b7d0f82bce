package problemdocs

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"triprize/internal/domain/fault"
)

// textWidth is the longest line of plain text, in characters.
const textWidth = 78

// ProblemText writes the page about code as plain text, for people who read it
// in a terminal. It fails as ProblemPage does.
func ProblemText(w io.Writer, code fault.Code, status int) error {
	page, err := newProblemPage(code, status)
	if err != nil {
		return fmt.Errorf("problemdocs.ProblemText: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s (%s)\n", page.Code, page.Status)
	fmt.Fprintf(&b, "%s.\n\n", page.Title)
	b.WriteString("WHAT HAPPENED\n\n" + wrap(page.Happened, "  ", "  "))
	b.WriteString("\nDOES IT HELP TO TRY AGAIN?\n\n" + wrap(page.Retry, "  ", "  "))
	b.WriteString("\nWHAT TO DO\n\n")
	for i, step := range page.Remedy {
		b.WriteString(wrap(step, fmt.Sprintf("  %d. ", i+1), "     "))
	}
	b.WriteString("\nWHAT IT LOOKS LIKE\n\n" + wrap(page.Arrives, "  ", "  ") + "\n")
	if page.Example.Head != "" {
		b.WriteString(indent(page.Example.Head) + "\n")
	}
	b.WriteString(indent(page.Example.Body))
	b.WriteString("\nAll problems: " + indexPath + "\nThe API: " + docsPath + "\n")
	_, err = b.WriteTo(w)
	return err
}

// ProblemIndexText writes the index of all problems as plain text.
func ProblemIndexText(w io.Writer, statuses func(fault.Code) int) error {
	var b bytes.Buffer
	for i, p := range newIndexPage(statuses).Parts {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(strings.ToUpper(p.group.Title) + "\n\n" + wrap(p.Lede, "  ", "  ") + "\n")
		for _, e := range p.Entries {
			fmt.Fprintf(&b, "  %d  %-26s %s\n", e.Status, e.Code, e.Title)
		}
	}
	b.WriteString("\nOne of them: " + indexPath + "/{code}\nThe API: " + docsPath + "\n")
	_, err := b.WriteTo(w)
	return err
}

// wrap breaks a paragraph into lines. The first begins with first, the others with
// rest. A word that is longer than a line gets a line of its own.
func wrap(paragraph, first, rest string) string {
	var b strings.Builder
	line, empty := first, true
	for word := range strings.FieldsSeq(paragraph) {
		switch {
		case empty:
			line, empty = line+word, false
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > textWidth:
			b.WriteString(line + "\n")
			line = rest + word
		default:
			line += " " + word
		}
	}
	return b.String() + line + "\n"
}

// indent puts two blanks before every line.
func indent(block string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n  ") + "\n"
}
