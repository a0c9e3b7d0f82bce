package stripesim

import (
	"html/template"
	"net/http"
	"net/url"
)

// authentication is the page where a buyer says who it is, as the bank's would be.
var authentication = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sandbox: authentication</title></head>
<body>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{if .Open}}<form method="post">
<button name="outcome" value="succeed">Authenticate</button>
<button name="outcome" value="fail">Fail</button>
</form>{{end}}
</body></html>
`))

type pageContent struct {
	Title, Text string
	Open        bool
}

func show(w http.ResponseWriter, status int, content pageContent) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.WriteHeader(status)
	_ = authentication.Execute(w, content)
}

var noPage = pageContent{Title: "There is no such authentication", Text: "It was made for another try to pay, or the payment was cancelled."}

// action finds the action that a page belongs to. Its token is the permission.
func (c *change) action(r *http.Request) *intent {
	i := c.intents.by[r.PathValue("intent")]
	if i == nil || i.Action == nil || !same(r.PathValue("token"), i.Action.Token) {
		return nil
	}
	return i
}

func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	content, status := noPage, http.StatusNotFound
	s.mutate("", "", "", func(c *change) {
		i := c.action(r)
		if i == nil {
			return
		}
		status, content = http.StatusOK, pageContent{Title: "Authentication of a payment", Text: "This is the sandbox: no bank asks, and no money moves.", Open: i.Action.Outcome == ""}
		if !content.Open {
			content.Text = "It is over: " + i.Action.Outcome + "."
		}
	})
	show(w, status, content)
}

// answerPage takes the buyer's answer and sends the browser back to the shop. The same
// answer a second time changes nothing.
func (s *Server) answerPage(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	answer := r.PostFormValue("outcome")
	if answer != "succeed" && answer != "fail" {
		show(w, http.StatusBadRequest, pageContent{Title: "The answer is unclear", Text: "outcome must be succeed or fail."})
		return
	}
	var back string
	found := false
	content := pageContent{Title: "Authentication of a payment"}
	seq := s.mutate(newID("req"), "", "", func(c *change) {
		i := c.action(r)
		if i == nil {
			return
		}
		found = true
		if i.Action.Outcome == "" {
			c.authenticated(i, answer == "succeed")
		}
		content.Text = "It is over: " + i.Action.Outcome + "."
		back = i.back()
	})
	switch {
	case s.journal.wait(seq) != nil:
		show(w, http.StatusInternalServerError, pageContent{Title: "The sandbox cannot write its journal", Text: "See its log."})
	case !found:
		show(w, http.StatusNotFound, noPage)
	case back == "":
		show(w, http.StatusOK, content)
	default:
		http.Redirect(w, r, back, http.StatusSeeOther)
	}
}

// back is where the browser goes when an action is over; empty if there is no place.
func (i *intent) back() string {
	u, err := url.Parse(i.Action.ReturnURL)
	if err != nil || i.Action.ReturnURL == "" {
		return ""
	}
	values := u.Query()
	values.Set("payment_intent", i.ID)
	values.Set("payment_intent_client_secret", i.Secret)
	values.Set("redirect_status", i.Action.Outcome)
	u.RawQuery = values.Encode()
	return u.String()
}

// showReturned stands for the page of a shop to which a buyer returns.
func showReturned(w http.ResponseWriter, r *http.Request) {
	content := pageContent{Title: "Back in the shop", Text: "The payment has not been named."}
	if status := r.URL.Query().Get("redirect_status"); status != "" {
		content.Text = "The authentication of " + r.URL.Query().Get("payment_intent") + " has ended: " + status + "."
	}
	show(w, http.StatusOK, content)
}
