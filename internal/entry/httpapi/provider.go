package httpapi

import (
	"triprize/internal/domain/payprovider"
	"triprize/internal/maintenance/recovery"
	"triprize/internal/service/payments"
	"triprize/internal/store/agenda"
)

// openPayments makes what is needed where cards are accepted. The api calls the provider
// for one thing only: when an operator runs the sweep missed-events.
func (s *Server) openPayments(provider payprovider.Provider, sweeper *recovery.Sweeper) {
	if provider == nil {
		return
	}
	s.provider = provider
	events := payments.NewEvents(s.db, provider, s.logger, s.registry)
	sweeper.UseProvider(events, s.provider)
	s.webhooks = newWebhooks(s.provider, events.Store, func() { s.dispatcher.Dispatch(payments.EventsTask()) }, s.settings, s.logger, s.registry)
}

// dispatchDue enqueues payments that an operator has made due, where cards are accepted.
// Elsewhere the sweep due-items sees to them.
func (s *Server) dispatchDue(items []agenda.Item) {
	if s.provider != nil {
		s.dispatcher.Dispatch(agenda.Tasks(items)...)
	}
}

// closePayments stores the events that wait.
func (s *Server) closePayments() {
	if s.webhooks == nil {
		return
	}
	s.webhooks.close()
	s.provider.Close()
}
