package httpapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/queue"
	"triprize/internal/service/payments"
	"triprize/internal/store/payment"
)

// openPayments makes what is needed where cards are accepted. The api calls the provider
// for one thing only: when an operator runs the sweep missed-events.
func (s *Server) openPayments(provider payprovider.Provider, rdb redis.UniversalClient, registry prometheus.Registerer) {
	if provider == nil {
		return
	}
	s.provider = provider
	events := payments.NewEvents(s.db, provider, s.logger, registry)
	s.tasks = payments.NewDispatcher(queue.NewClient(rdb, s.settings.Redis.Namespace, s.settings.Worker.TaskTimeout), s.logger, registry)
	s.sweeper.UseProvider(events, s.provider)
	s.webhooks = newWebhooks(s.provider, events.Store, s.tasks.Events, s.settings, s.logger, registry)
}

// dispatchPayments enqueues payments that an operator has made due, where cards are
// accepted. Elsewhere the sweep unsettled-payments sees to them.
func (s *Server) dispatchPayments(refs []payment.Ref) {
	if s.tasks != nil {
		s.tasks.Payments(refs)
	}
}

// closePayments stores the events that wait, and then enqueues their tasks.
func (s *Server) closePayments() {
	if s.webhooks == nil {
		return
	}
	s.webhooks.close()
	s.tasks.Close()
	s.provider.Close()
}
