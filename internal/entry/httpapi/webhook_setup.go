package httpapi

import (
	"errors"
	"net/netip"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/seal"
	"triprize/internal/service/endpoints"
)

// endpointsPerClient is how many endpoints a client has at most.
const endpointsPerClient = 16

// openWebhooks prepares what clients decide about their webhook endpoints.
func (s *Server) openWebhooks(gate *postgres.Gate, key seal.Ring) {
	rules := endpoints.URLRules{Allowed: func(addr netip.Addr) error {
		if !addr.IsGlobalUnicast() || addr.IsPrivate() {
			return errors.New("it is not public")
		}
		return nil
	}}
	s.endpoints = endpoints.New(gate.Patient(0), key, endpointsPerClient, rules.Check, webhookDocuments)
}
