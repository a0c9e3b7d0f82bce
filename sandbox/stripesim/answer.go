package stripesim

import "net/http"

// refuse answers with a problem that no key keeps.
func (s *Server) refuse(w http.ResponseWriter, problem *apiError) {
	switch problem.status {
	case http.StatusConflict:
		w.Header().Set("Stripe-Should-Retry", "true")
	case http.StatusTooManyRequests:
		w.Header().Set("Stripe-Rate-Limited-Reason", problem.reason)
	case http.StatusInternalServerError:
	default:
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	write(w, problem.status, problem.body())
}
