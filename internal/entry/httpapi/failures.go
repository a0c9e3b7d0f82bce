package httpapi

import (
	"context"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
)

func (s *server) ListFailures(ctx context.Context, r operations.ListFailuresRequestObject) (operations.Answer, error) {
	since, until := response.ValueOf(r.Params.Since).UTC(), response.ValueOf(r.Params.Until).UTC()
	if until.IsZero() {
		until = time.Now().UTC().Add(time.Second) // the clocks of the apis differ
	}
	if since.IsZero() {
		since = until.Add(-time.Hour)
	}
	if length := until.Sub(since); length <= 0 || length > 7*24*time.Hour+time.Minute { // who asks for seven days up to now has asked a moment ago
		return nil, fault.Invalid(fault.Field{Pointer: "?since", Detail: "must be before the end of the span, and at most seven days"})
	}
	all, complete, err := job.ListFailures(ctx, s.db, since, until, fault.Ours, 200_000)
	causes := response.Documents(all, func(f job.Failures) contract.Failure {
		return contract.Failure{Code: string(f.Code), Kind: string(f.Kind), Count: f.Count, LastAt: f.LastAt, Jobs: f.Newest}
	})
	return operations.ListFailures200(contract.FailureList{Since: since, Until: until, Complete: complete, Causes: causes}, err)
}
