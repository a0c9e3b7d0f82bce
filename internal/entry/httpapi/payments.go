package httpapi

// closePayments stores the events that wait, and enqueues their tasks.
func (s *Server) closePayments() {
	if s.webhooks != nil {
		s.webhooks.close()
	}
}
