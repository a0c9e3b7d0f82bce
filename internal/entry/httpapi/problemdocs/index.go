package problemdocs

import (
	"cmp"
	"io"
	"slices"

	"triprize/internal/domain/fault"
)

// group is a part of the index: codes that a client handles in the same way.
type group struct {
	Name  string // the CSS class, which sets the colour of its pages
	Title string
	Lede  string
}

var (
	toChange = group{"change", "Put the request right", "The same request is refused again: change it first."}
	byState  = group{"state", "Take it as an answer",
		"The request is valid, but the present state does not allow it. Most of these are the `problem` of a failed job."}
	toRepeat = group{"repeat", "Wait and try again",
		"Nothing is wrong with the request. Send it again, with the same `Idempotency-Key`."}
)

func groupOf(code fault.Code) group {
	switch code.Kind() {
	case fault.KindConflict, fault.KindMismatch:
		return byState
	case fault.KindTimeout, fault.KindLimited, fault.KindUnavailable, fault.KindInternal:
		return toRepeat
	default:
		return toChange
	}
}

// entry is a code's line in the index.
type entry struct {
	Status int
	Code   fault.Code
	Title  string
}

type part struct {
	group
	Entries []entry
}

// indexPage is the data of the template of the index.
type indexPage struct {
	Title string
	Group group
	Parts []part
}

// ProblemIndex writes the index of all problems as HTML; statuses returns the HTTP
// status of a code.
func ProblemIndex(w io.Writer, statuses func(fault.Code) int) error {
	return render(w, "index.html", newIndexPage(statuses))
}

func newIndexPage(statuses func(fault.Code) int) indexPage {
	page := indexPage{Title: "Problems", Group: byState}
	for _, g := range []group{toChange, byState, toRepeat} {
		var entries []entry
		for _, c := range fault.Codes() {
			if groupOf(c) == g {
				entries = append(entries, entry{statuses(c), c, c.Title()})
			}
		}
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code)) })
		page.Parts = append(page.Parts, part{g, entries})
	}
	return page
}
