package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/entry/httpapi/body"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
)

func (s *server) ListPayments(ctx context.Context, r operations.ListPaymentsRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.Waiting(ctx, s.db, payment.BlockedReason(response.ValueOf(r.Params.WaitingFor)), after, limit+1)
	list, next := response.Cut(list, limit, func(last payment.Payment) uuid.UUID { return last.PurchaseID })
	return operations.ListPayments200(contract.CardPaymentPage{Payments: response.Documents(list, cardPaymentJSON), NextCursor: next}, err)
}

func (s *server) RetryPayment(ctx context.Context, r operations.RetryPaymentRequestObject) (operations.Answer, error) {
	request := s.command(ctx, job.KindPaymentRetry)
	done, err := s.cardPayments.Retry(ctx, request, r.Purchase)
	return s.commandDone(ctx, done, err)
}

func (s *server) ResolvePayment(ctx context.Context, r operations.ResolvePaymentRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state what was found at the provider, for the records"})
	}
	says := payment.Resolution{Version: r.Body.Version, Found: payment.Finding(r.Body.Outcome), Reference: strings.TrimSpace(r.Body.Reference), By: who.Signature(), Reason: r.Body.Reason}
	if (says.Found == payment.FoundOutOfBand) != (says.Reference != "") {
		return nil, fault.Invalid(fault.Field{Pointer: "/reference", Detail: "must state where the money can be found, with the outcome paid-out-of-band only"})
	}
	request := s.command(ctx, job.KindPaymentResolve)
	done, err := s.cardPayments.Resolve(ctx, request, r.Purchase, says)
	return s.commandDone(ctx, done, err)
}

// cardPaymentJSON is a payment as operators see it.
func cardPaymentJSON(p payment.Payment) contract.CardPayment {
	d := contract.CardPayment{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.PurchaseID, Amount: int64(p.Amount), Currency: p.Currency,
		PaymentMethod: p.PaymentMethod, Reference: p.IntentID, Phase: contract.CardPaymentPhase(p.Phase), Status: p.IntentStatus, Reason: p.Reason(),
		NextLookAt: p.DueAt, ExpiresAt: p.OverAt(), CreatedAt: p.CreatedAt, Version: p.Version}
	if waiter := string(p.WaitsFor()); waiter != "" {
		d.WaitingFor = &waiter
	}
	if p.ResolvedAs != nil && p.ResolvedBy != nil && p.ResolveReason != nil { // the table has all or none
		d.Resolution = &contract.PaymentResolution{Outcome: contract.PaymentOutcome(*p.ResolvedAs), By: *p.ResolvedBy, Reason: *p.ResolveReason, Reference: p.Reference}
	}
	return d
}

func (s *server) ListRefunds(ctx context.Context, r operations.ListRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.RefundsOfCampaign(ctx, s.db, who.Grant(), r.Campaign, payment.RefundState(response.ValueOf(r.Params.State)), after, limit+1)
	return operations.ListRefunds200(refundPage(list, limit, who.Role), err)
}

func (s *server) ListWaitingRefunds(ctx context.Context, r operations.ListWaitingRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := payment.RefundsWaitingForOperator(ctx, s.db, after, limit+1)
	return operations.ListWaitingRefunds200(refundPage(list, limit, who.Role), err)
}

func refundPage(list []payment.Refund, limit int, who resource.Role) contract.RefundPage {
	list, next := response.Cut(list, limit, func(last payment.Refund) uuid.UUID { return last.ID })
	return contract.RefundPage{Refunds: response.Documents(list, func(one payment.Refund) contract.Refund { return resource.Refund(one, who) }), NextCursor: next}
}

func (s *server) GetRefund(ctx context.Context, r operations.GetRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	found, err := payment.GetRefund(ctx, s.db, who.Grant(), r.Refund)
	return operations.GetRefund200(resource.Refund(found, who.Role), err)
}

func (s *server) RetryRefund(ctx context.Context, r operations.RetryRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	request := s.command(ctx, job.KindRefundRetry)
	done, err := s.refunds.Retry(ctx, request, r.Refund, who.Signature())
	return s.commandDone(ctx, done, err)
}

func (s *server) ResolveRefund(ctx context.Context, r operations.ResolveRefundRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := checkResolution(r.Body.Reason); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindRefundResolve)
	done, err := s.refunds.Resolve(ctx, request, who.Grant(), refunds.ByHand{ID: r.Refund, Amount: money.Amount(r.Body.Amount)}, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err)
}

func (s *server) ResolveRefunds(ctx context.Context, r operations.ResolveRefundsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	if err := checkResolution(r.Body.Reason); err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindRefundsResolve)
	request.CampaignID = r.Campaign
	made := make([]refunds.ByHand, len(r.Body.Refunds))
	for i, one := range r.Body.Refunds {
		made[i] = refunds.ByHand{ID: one.ID, Amount: money.Amount(one.Amount)}
	}
	done, err := s.refunds.ResolveCampaign(ctx, request, who.Grant(), made, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err)
}

func checkResolution(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state how the money was returned, for the records"})
	}
	return nil
}

func (s *server) ListPaymentDiscrepancies(ctx context.Context, r operations.ListPaymentDiscrepanciesRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := reconciliation.List(ctx, s.db, reconciliation.State(response.ValueOf(r.Params.State)), after, limit+1)
	list, next := response.Cut(list, limit, func(last reconciliation.Discrepancy) uuid.UUID { return last.ID })
	return operations.ListPaymentDiscrepancies200(contract.PaymentDiscrepancyPage{PaymentDiscrepancies: response.Documents(list, discrepancyJSON), NextCursor: next}, err)
}

func (s *server) ExplainPaymentDiscrepancy(ctx context.Context, r operations.ExplainPaymentDiscrepancyRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state the reason for the discrepancy, for the records"})
	}
	request := s.command(ctx, job.KindDiscrepancyExplain)
	done, err := s.discrepancies.Explain(ctx, request, r.Discrepancy, r.Body.Version, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err)
}

func discrepancyJSON(d reconciliation.Discrepancy) contract.PaymentDiscrepancy {
	doc := contract.PaymentDiscrepancy{ID: d.ID, Kind: string(d.Kind), State: contract.PaymentDiscrepancyState(d.State()), Reference: d.ObjectID,
		Transaction: d.TransactionID, PurchaseID: d.PurchaseID, Here: contract.PaymentDiscrepancySide{Amount: d.HereAmount, Currency: d.HereCurrency},
		There: contract.PaymentDiscrepancySide{Amount: d.ThereAmount, Currency: d.ThereCurrency}, Detail: d.Detail, FoundAt: d.FoundAt, ClosedAt: d.ClosedAt, Version: d.Version}
	if d.ExplainedBy != nil && d.Explanation != nil && d.ExplainedAt != nil { // the table has all or none
		doc.Explanation = &contract.PaymentDiscrepancyExplanation{By: *d.ExplainedBy, Reason: *d.Explanation, At: *d.ExplainedAt}
	}
	return doc
}

// Events of the provider share transactions, as requests do. Nobody waits for an answer
// but the provider, so one that comes soon after others waits for those that follow.
const (
	eventsPerBatch  = 100
	eventBatches    = 1 // under way at once
	eventsEvery     = 200 * time.Millisecond
	eventsPending   = 1024            // that wait for a batch; any more are answered 503
	eventBodies     = 4 << 20         // bytes of long ones at once: an address has half of them at most
	eventArrives    = 5 * time.Second // a long one has come by then: the provider sends it at once
	stripeSignature = "Stripe-Signature"
)

// webhooks takes the events of the provider. A sender that knows the secret of the webhook
// may send them, and no one else; so nothing is done for a body before its signature is
// checked, and nothing but that check depends on how many bad ones come. A body is not even
// read when its signature has not the form of one or is old; long ones have room by address, for
// a short time.
type webhooks struct {
	provider  payprovider.Provider
	events    *batch.Coalescer[payprovider.Event, struct{}]
	bodies    body.Bodies // of their own: anybody may send some
	outcomes  *prometheus.CounterVec
	logger    *slog.Logger
	sometimes rate.Sometimes
	storing   atomic.Int64 // events that are believed and not answered yet
}

// stripeWebhook answers 200 when an event is stored, and not before.
func (s *server) stripeWebhook(c *fiber.Ctx, o *openapi.Operation) error {
	w := s.webhooks
	if w == nil {
		return errNoCards
	}
	event, err := s.readEvent(c, o)
	if err != nil {
		w.refuse(err)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.Accept.Timeout)
	defer cancel()
	w.storing.Add(1)
	defer w.storing.Add(-1)
	if _, err := w.events.Do(ctx, event); err != nil {
		if errors.Is(err, cards.ErrEvent) {
			err = fault.Wrap(fault.InvalidRequest, err, "the event is not for this system")
			w.refuse(err)
			return err
		}
		w.outcomes.WithLabelValues("failed").Inc()
		if errors.Is(err, batch.ErrFull) {
			return fault.Wrap(fault.Overloaded, err, "too many events are being received; send this one again later")
		}
		return fault.Wrap(fault.Unavailable, err, "the event may not have been stored; send it again later")
	}
	w.outcomes.WithLabelValues("stored").Inc()
	return c.Status(http.StatusOK).JSON(fiber.Map{"received": true})
}

func (s *server) readEvent(c *fiber.Ctx, o *openapi.Operation) (event payprovider.Event, err error) {
	signature := c.Get(stripeSignature)
	if signature == "" {
		return event, invalidSignature("is missing: this address is for the payment provider")
	}
	if err := s.webhooks.provider.CheckSignature(signature); err != nil {
		return event, refusalOf(err)
	}
	if err := body.CheckMedia(c, o); err != nil {
		return event, err
	}
	address := s.addressOf(c)
	ctx, cancel := s.context()
	defer cancel()
	err = s.webhooks.bodies.Read(ctx, c, address, min(o.MaxBody, s.settings.API.BodyLimitBytes), func(sent []byte) (err error) {
		event, err = s.webhooks.provider.ParseEvent(sent, signature)
		return err
	})
	return event, refusalOf(err)
}

func invalidSignature(detail string) *fault.Error {
	return fault.Invalid(fault.Field{Pointer: stripeSignature, Detail: detail})
}

// refuse counts a refusal and says from time to time why: a secret that was not changed
// here would otherwise be noticed by nobody.
func (w *webhooks) refuse(err error) {
	w.outcomes.WithLabelValues("refused").Inc()
	w.sometimes.Do(func() {
		w.logger.Warn("a webhook is refused; the next minute's are only counted (triprize_provider_events_received_total)", "error", err)
	})
}

func refusalOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, payprovider.ErrTooOld):
		return invalidSignature("was made too long ago: is the clock of this server right?")
	case errors.Is(err, payprovider.ErrSignature):
		return invalidSignature("does not fit the body; is payments.stripe.webhook_secret that of this webhook?")
	}
	if f, ok := errors.AsType[*fault.Error](err); ok { // of the body
		return f
	}
	return fault.Wrap(fault.InvalidRequest, err, "the body is not an event for this system")
}

// openPayments makes what is needed where cards are accepted, and returns the events of the
// provider. The api calls the provider only for an operator: in a sweep that asks it, or about a payment that is
// said to be paid.
func (s *server) openPayments(provider payprovider.Provider) *cards.Events {
	if provider == nil {
		return nil
	}
	events := cards.NewEvents(s.db, provider, s.logger, s.registry)
	w := &webhooks{provider: provider, logger: s.logger, bodies: body.New(eventBodies, s.settings.API.RequestTimeout, cmp.Or(s.settings.Payments.Stripe.EventTimeout, eventArrives)), sometimes: rate.Sometimes{First: 1, Interval: time.Minute},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_provider_events_received_total",
			Help: "Calls of webhooks by outcome: stored (now or before), refused (not signed by the provider, or not for us), failed (told to come again)."}, []string{"outcome"})}
	s.registry.MustRegister(w.outcomes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_provider_events_storing",
		Help: "Events of webhooks that are being stored."}, func() float64 { return float64(w.storing.Load()) }))
	telemetry.Expect(w.outcomes, "stored", "refused", "failed")
	w.events = batch.New(batch.Options{Size: eventsPerBatch, MinInterval: eventsEvery, InFlight: eventBatches, Pending: eventsPending, Timeout: s.settings.Accept.Timeout,
		Whole: func(err error) bool { return !errors.Is(err, cards.ErrEvent) }},
		func(ctx context.Context, list []payprovider.Event) ([]struct{}, error) {
			open, err := events.Store(postgres.As(ctx, postgres.TxPayment), list)
			if err == nil && open > 0 {
				s.dispatcher.Dispatch(cards.EventsTask())
			}
			return make([]struct{}, len(list)), err
		})
	s.webhooks = w
	return events
}

// dispatchDue enqueues payments that an operator has made due, where cards are accepted.
// Elsewhere the sweep due-items sees to them.
func (s *server) dispatchDue(items []lease.Item) {
	if s.webhooks != nil {
		s.dispatcher.Dispatch(lease.Tasks(items)...)
	}
}
