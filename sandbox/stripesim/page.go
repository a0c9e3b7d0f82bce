package stripesim

import (
	"html/template"
	"net/http"
	"net/url"
)

// browserPage is what a browser shows.
var browserPage = template.Must(template.New("page").Parse(`<!doctype html>
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
	_ = browserPage.Execute(w, content)
}

// authentication is the page where a buyer says who it is, as the bank's would be. Its token is the
// permission. An answer (outcome) sends the browser back to the shop; a second one changes nothing.
func (s *Server) authentication(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	answer := r.PostFormValue("outcome")
	if r.Method == http.MethodPost && answer != "succeed" && answer != "fail" {
		show(w, http.StatusBadRequest, pageContent{Title: "The answer is unclear", Text: "outcome must be succeed or fail."})
		return
	}
	status, back := http.StatusNotFound, ""
	content := pageContent{Title: "There is no such authentication", Text: "It was made for another try to pay, or the payment was cancelled."}
	err := s.mutate(&call{id: newID("req")}, func(c *change) {
		i := find[*intent](c.state, r.PathValue("intent"))
		if i == nil || i.Action == nil || !same(r.PathValue("token"), i.Action.Token) {
			return
		}
		if answer != "" && i.Action.Outcome == "" {
			c.authenticated(i, answer == "succeed")
		}
		status, content = http.StatusOK, pageContent{Title: "Authentication of a payment", Text: "It is over: " + i.Action.Outcome + ".", Open: i.Action.Outcome == ""}
		if content.Open {
			content.Text = "This is the sandbox: no bank asks, and no money moves."
		} else if answer != "" {
			back = i.back()
		}
	})
	switch {
	case err != nil:
		show(w, http.StatusInternalServerError, pageContent{Title: "The sandbox cannot write its journal", Text: err.Error()})
	case back != "":
		http.Redirect(w, r, back, http.StatusSeeOther)
	default:
		show(w, status, content)
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

// returned stands for the page of a shop to which a buyer returns.
func returned(w http.ResponseWriter, r *http.Request) {
	content := pageContent{Title: "Back in the shop", Text: "The payment has not been named."}
	if status := r.URL.Query().Get("redirect_status"); status != "" {
		content.Text = "The authentication of " + r.URL.Query().Get("payment_intent") + " has ended: " + status + "."
	}
	show(w, http.StatusOK, content)
}
