package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/store/balance"
	"triprize/internal/store/job"
)

// ListPaymentDifferences answers with one page of differences.
func (s *Server) ListPaymentDifferences(ctx context.Context, r operations.ListPaymentDifferencesRequestObject) (operations.Answer, error) {
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := balance.List(ctx, s.db, balance.State(response.ValueOf(r.Params.State)), after, limit)
	return operations.ListPaymentDifferences200(contract.PaymentDifferencePage{PaymentDifferences: response.Documents(list, differenceJSON),
		NextCursor: response.NextCursor(list, limit, func(last balance.Difference) uuid.UUID { return last.ID })}, err)
}

// ExplainPaymentDifference notes why a difference is none.
func (s *Server) ExplainPaymentDifference(ctx context.Context, r operations.ExplainPaymentDifferenceRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if strings.TrimSpace(r.Body.Reason) == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must say why it is no difference, for the records"})
	}
	request := s.command(ctx, job.KindDifferenceExplain, http.StatusOK)
	done, err := s.differences.Explain(ctx, request, r.Difference, who.Signature(), r.Body.Reason)
	return s.commandDone(ctx, done, err, "")
}

func differenceJSON(d balance.Difference) contract.PaymentDifference {
	doc := contract.PaymentDifference{ID: d.ID, Kind: string(d.Kind), State: contract.PaymentDifferenceState(d.State()), Reference: d.ObjectID,
		Transaction: d.TransactionID, PurchaseID: d.PurchaseID, Here: contract.PaymentDifferenceSide{Amount: d.HereAmount, Currency: d.HereCurrency},
		There: contract.PaymentDifferenceSide{Amount: d.ThereAmount, Currency: d.ThereCurrency}, Detail: d.Detail, FoundAt: d.FoundAt, ClosedAt: d.ClosedAt}
	if d.ExplainedBy != nil && d.Explanation != nil && d.ExplainedAt != nil { // the table has all or none
		doc.Explanation = &contract.PaymentDifferenceExplanation{By: *d.ExplainedBy, Reason: *d.Explanation, At: *d.ExplainedAt}
	}
	return doc
}
