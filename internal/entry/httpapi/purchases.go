package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
)

func (s *server) RequestPurchase(ctx context.Context, r operations.RequestPurchaseRequestObject) (operations.Answer, error) {
	order, err := s.orderOf(ctx, r.Campaign, r.Body)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	var also []job.Kind
	if order.Payment.Method == purchase.Card {
		also = []job.Kind{job.KindPayment}
	}
	return s.accept(ctx, job.Request{Kind: job.KindPurchase, CampaignID: r.Campaign, UserID: order.UserID, Payload: payload,
		Retention: s.settings.Retention.Purchases}, also...)
}

// orderOf makes of a request what its job sells, or says what is wrong with it.
func (s *server) orderOf(ctx context.Context, campaignID uuid.UUID, body *contract.PurchaseRequest) (order sale.Order, err error) {
	who, wanted, paid := call.Of(ctx), body.Selection, body.Payment
	if err := who.MayAskFor(body.UserID, body.Metadata); err != nil {
		return order, err
	}
	if paid.Method == contract.PaymentDraftMethodExternal && who.Role == resource.User {
		return order, fault.New(fault.Forbidden, "only an app may use payment.method external, because it has collected the money")
	}
	order = sale.Order{UserID: body.UserID, Metadata: metadata.Map(body.Metadata), Payment: sale.Payment{Method: purchase.PaymentMethod(paid.Method),
		Reference: paid.Reference, PaymentMethod: paid.PaymentMethod, ReturnURL: paid.ReturnURL}}
	if order.Payment.Method == purchase.Wallet {
		order.By = who.Signature() // for its entry of the ledger
	}
	order.Selection, err = inventory.Selection{Layer: response.ValueOf(wanted.Layer), Quantity: wanted.Quantity, Adjacent: wanted.Adjacent, HoldID: response.ValueOf(wanted.HoldID)}.
		With(ctx, s.db, s.terms, campaignID, choices(wanted.Positions), "/selection", s.settings.Campaigns.MaxQuantity)
	if err == nil {
		err = checkPayment(order.Payment, s.settings.Payments)
	}
	return order, err
}

func (s *server) GetPurchase(ctx context.Context, r operations.GetPurchaseRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	p, err := purchase.Get(ctx, s.db, who.Grant(), r.Purchase)
	if err != nil {
		return nil, err
	}
	document, err := s.purchaseDocuments(ctx, who.Caller, []purchase.Purchase{p}, r.Params.Include != nil)
	if err != nil {
		return nil, err
	}
	return operations.GetPurchase200(document[0], nil)
}

func (s *server) ListPurchases(ctx context.Context, r operations.ListPurchasesRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if !who.MayActFor(r.User) {
		return nil, fault.New(fault.NotFound, "there is no user %s", r.User)
	}
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	f := purchase.Filter{Who: who.Grant(), UserID: r.User, CampaignID: response.ValueOf(r.Params.CampaignID)}
	return operations.ListPurchases200(s.purchaseList(ctx, who.Caller, f, page, r.Params.Include != nil))
}

// CancelPurchase accepts the cancellation of a purchase, or of positions of it, as a job. The job
// checks whether they can be cancelled.
func (s *server) CancelPurchase(ctx context.Context, r operations.CancelPurchaseRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	p, err := purchase.Get(ctx, s.db, who.Grant(), r.Purchase)
	if err != nil {
		return nil, err
	}
	positions, err := s.positionsOf(ctx, p, r.Body.Positions)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(sale.Cancellation{PurchaseID: p.ID, Positions: positions, By: who.Signature(), Reason: r.Body.Reason, AnyTime: who.Role == resource.Operator})
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindCancellation, CampaignID: p.CampaignID, UserID: p.UserID, Owner: p.Client, Payload: payload,
		Retention: s.settings.Retention.Purchases})
}

func (s *server) TryPayment(ctx context.Context, r operations.TryPaymentRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	p, err := purchase.Get(ctx, s.db, who.Grant(), r.Purchase)
	if err != nil {
		return nil, err
	}
	if !s.settings.Payments.Stripe.Enabled() {
		return nil, errNoCards
	}
	if p.PaymentMethod != purchase.Card {
		return nil, fault.New(fault.StateConflict, "the purchase is not paid by card")
	}
	var page *string
	if r.Body.ReturnURL != "" {
		if page = &r.Body.ReturnURL; !isPage(*page) {
			return nil, fault.Invalid(fault.Field{Pointer: "/return_url", Detail: notPage})
		}
	}
	wait, done, err := s.waitOf(who)
	if err != nil {
		return nil, err
	}
	defer done()
	request := s.command(ctx, job.KindPaymentTry)
	request.CampaignID, request.UserID, request.HTTPStatus = p.CampaignID, p.UserID, http.StatusAccepted
	tried, err := s.payments.Try(ctx, request, p.ID, payment.Buyer{Client: p.Client, ID: p.UserID}, r.Body.PaymentMethod, page)
	if _, err := s.commandDone(ctx, tried, err); err != nil {
		return nil, err
	}
	return s.answerPurchase(ctx, who, p, wait, tried.Replayed)
}

func (s *server) answerPurchase(ctx context.Context, who *call.Call, p purchase.Purchase, wait response.Prefer, replayed bool) (response.Result, error) {
	j, err := job.Get(ctx, s.db, p.ID)
	if err != nil {
		return response.Result{}, err
	}
	who.EndShare()
	return s.answerJob(ctx, who, j, wait, nil, replayed)
}

// positionsOf checks which positions of a purchase a request names. Those that it had, too, are for
// the job to refuse: a request is repeated with its answer.
func (s *server) positionsOf(ctx context.Context, p purchase.Purchase, named []contract.PlaceDraft) ([]shape.Position, error) {
	if len(named) == 0 {
		return nil, nil
	}
	known, err := s.terms.Of(ctx, s.db, p.CampaignID)
	if err != nil {
		return nil, err
	}
	positions, _, err := inventory.Choose(choices(named), "", known.Shape)
	if err != nil || p.State.Open() {
		return positions, err
	}
	had := slices.Clone(p.Items)
	for _, part := range p.Partial {
		had = append(had, part.Items...)
	}
	var faults []fault.Field
	for i, at := range positions {
		if !slices.ContainsFunc(had, func(item purchase.Item) bool { return item.Position == at }) {
			faults = append(faults, fault.Field{Pointer: fmt.Sprintf("/positions/%d", i), Detail: "is not a position of the purchase"})
		}
	}
	if len(faults) > 0 {
		return nil, fault.Invalid(faults...)
	}
	return positions, nil
}

func (s *server) ListCampaignPurchases(ctx context.Context, r operations.ListCampaignPurchasesRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	f := purchase.Filter{Who: who.Grant(), CampaignID: r.Campaign, UserID: response.ValueOf(r.Params.UserID), State: purchase.State(response.ValueOf(r.Params.State)),
		Method: purchase.PaymentMethod(response.ValueOf(r.Params.Method))}
	if err := s.ofReference(ctx, &f, response.ValueOf(r.Params.Reference)); err != nil {
		return nil, err
	}
	if r.Params.Dispute != nil {
		list, next, err := payment.ListDisputed(ctx, s.db, string(*r.Params.Dispute), f, page)
		if err != nil {
			return nil, err
		}
		documents, err := s.purchaseDocuments(ctx, who.Caller, list, false)
		return operations.ListCampaignPurchases200(contract.PurchaseList{Purchases: documents, NextCursor: response.ListCursor(next)}, err)
	}
	return operations.ListCampaignPurchases200(s.purchaseList(ctx, who.Caller, f, page, false))
}

func (s *server) FindPurchases(ctx context.Context, r operations.FindPurchasesRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	f := purchase.Filter{Who: who.Grant(), UserID: who.User}
	if err := s.ofReference(ctx, &f, r.Params.Reference); err != nil {
		return nil, err
	}
	return operations.FindPurchases200(s.purchaseList(ctx, who.Caller, f, page, r.Params.Include != nil))
}

// ofReference makes a filter select by the reference of a payment: that of the app, or that
// of the provider for a payment by card.
func (s *server) ofReference(ctx context.Context, f *purchase.Filter, reference string) error {
	f.Reference = reference
	if !strings.HasPrefix(reference, intentPrefix) {
		return nil
	}
	p, ok, err := payment.OfIntent(ctx, s.db, reference)
	if ok {
		f.Reference, f.ID = "", p.PurchaseID
	}
	return err
}

// intentPrefix begins the ids of payments at the provider.
const intentPrefix = "pi_"

func (s *server) purchaseList(ctx context.Context, who call.Caller, f purchase.Filter, page postgres.ListPage, campaigns bool) (answer contract.PurchaseList, err error) {
	list, next, err := purchase.List(ctx, s.db, f, page)
	if err != nil {
		return answer, err
	}
	answer.NextCursor = response.ListCursor(next)
	answer.Purchases, err = s.purchaseDocuments(ctx, who, list, campaigns)
	return answer, err
}

// purchaseDocuments are purchases as a caller sees them; campaigns: with their campaigns.
func (s *server) purchaseDocuments(ctx context.Context, who call.Caller, list []purchase.Purchase, campaigns bool) ([]contract.Purchase, error) {
	details, err := resource.ReadPurchaseDetails(ctx, s.db, list...)
	if err != nil {
		return nil, err
	}
	documents := make([]contract.Purchase, len(list))
	for i, p := range list {
		documents[i] = details.Purchase(p, who.Role)
	}
	if campaigns {
		err = s.includeCampaigns(ctx, who, documents)
	}
	return documents, err
}

func (s *server) includeCampaigns(ctx context.Context, who call.Caller, purchases []contract.Purchase) error {
	var ids []uuid.UUID
	for _, p := range purchases {
		if !slices.Contains(ids, p.CampaignID) {
			ids = append(ids, p.CampaignID)
		}
	}
	found, err := campaign.GetAll(ctx, s.db, ids)
	if err != nil {
		return err
	}
	byID := make(map[uuid.UUID]*contract.CampaignSummary, len(found))
	for _, c := range found {
		byID[c.ID] = new(resource.CampaignSummary(c, who.Role))
	}
	for i, p := range purchases {
		purchases[i].Campaign = byID[p.CampaignID]
	}
	return nil
}

// notPage says what a return_url must be.
const notPage = "must be the address of a page: https://…"

// errNoCards refuses every request that needs a payment provider, where there is none.
var errNoCards = fault.New(fault.CardsNotAccepted, "cards are not accepted here: this installation has no payment provider (payments.stripe.key)")

// checkPayment checks how a purchase is to be paid. A card has a payment method of the
// provider and no reference of the app; with the others it is the other way round.
//
// Without a page to return to, a card that must be authenticated could only be declined.
func checkPayment(p sale.Payment, defaults config.Payments) error {
	var faults []fault.Field
	wrong := func(field, detail string) {
		faults = append(faults, fault.Field{Pointer: "/payment/" + field, Detail: detail})
	}
	if p.Method == purchase.Card {
		if p.PaymentMethod == "" {
			wrong("payment_method", "is required with the method card: the id of the buyer's payment method at the provider, pm_…")
		}
		if p.Reference != "" {
			wrong("reference", "does not go with the method card: its reference is the id that the provider gives the payment")
		}
		if p.ReturnURL != "" && !isPage(p.ReturnURL) {
			wrong("return_url", notPage)
		}
		if p.ReturnURL == "" && defaults.ReturnURL == "" && defaults.Stripe.Enabled() {
			wrong("return_url", "is required, as this installation has no page to return to (payments.return_url): banks send buyers there")
		}
	} else {
		if p.PaymentMethod != "" {
			wrong("payment_method", "goes with the method card only")
		}
		if p.ReturnURL != "" {
			wrong("return_url", "goes with the method card only")
		}
	}
	switch {
	case len(faults) > 0:
		return fault.Invalid(faults...)
	case p.Method == purchase.Card && !defaults.Stripe.Enabled():
		return errNoCards
	}
	return nil
}

func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
}
