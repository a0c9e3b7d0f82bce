package problemdocs

import (
	"fmt"
	"io"
)

// homePage is the data of the template of the page at the root.
type homePage struct {
	Title string
	Group group
	Pages []struct{ Path, Title string }
}

func newHomePage() homePage {
	return homePage{Title: "Pages of this server", Group: byState, Pages: []struct{ Path, Title string }{
		{docsPath, "The operations of the API"},
		{indexPath, "What each error means, and what to do"},
		{"/verify", "Check a draw in your browser"},
	}}
}

// Home writes the page at the root as HTML: it leads to the others.
func Home(w io.Writer) error { return render(w, "home.html", newHomePage()) }

// HomeText writes it as plain text.
func HomeText(w io.Writer) error {
	for _, p := range newHomePage().Pages {
		if _, err := fmt.Fprintf(w, "%-10s %s\n", p.Path, p.Title); err != nil {
			return err
		}
	}
	return nil
}
