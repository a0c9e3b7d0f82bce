package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// maxBody bounds what is read: a webhook has 256 KiB at most, and its envelope.
const maxBody = 512 << 10

// Handler answers webhooks. handle is called for each event that is verified; when it returns
// an error, the answer is 500 and the event comes again. It may get an event more than once.
// It should be quick: the sender waits for 15 seconds. An unverified request gets 401. A challenge
// (webhook-endpoint.verification) is echoed, and handle does not see it.
func (v *Verifier) Handler(handle func(context.Context, Event) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "a webhook is a POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		event, err := v.Verify(r.Header, body)
		switch {
		case errors.Is(err, ErrUnverified):
			http.Error(w, "not verified", http.StatusUnauthorized)
			return
		case err != nil:
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		if challenge, ok := event.Challenge(); ok {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, challenge) //nolint:gosec // it is signed, and no HTML
			return
		}
		if err := handle(r.Context(), event); err != nil { // it is for the log of the receiver, not for the sender
			http.Error(w, "not handled", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
