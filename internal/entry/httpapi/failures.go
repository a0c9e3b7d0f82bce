package httpapi

import (
	"context"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/platform/readcache"
)

// failureSpan is a time that callers ask about.
type failureSpan struct{ since, until time.Time }

// ListFailures reads once for all who ask within two seconds.
func (s *server) ListFailures(ctx context.Context, r operations.ListFailuresRequestObject) (operations.Answer, error) {
	asked := failureSpan{response.ValueOf(r.Params.Since).UTC(), response.ValueOf(r.Params.Until).UTC()}
	if asked.until.IsZero() {
		asked.until = time.Now().UTC().Truncate(2 * time.Second).Add(2 * time.Second) // the same for all
	}
	if asked.since.IsZero() {
		asked.since = asked.until.Add(-time.Hour)
	}
	if length := asked.until.Sub(asked.since); length <= 0 || length > 7*24*time.Hour {
		return nil, fault.Invalid(fault.Field{Pointer: "?since", Detail: "must be before the end of the span, and at most seven days"})
	}
	found, err := s.failures.Get(ctx, asked, nil)
	return operations.ListFailures200(found.Value, err)
}

func (s *server) openFailures() {
	settings := readcache.Settings{MaxAge: 2 * time.Second, Pause: time.Second, Timeout: s.settings.API.RequestTimeout, MaxEntries: 100, MaxBytes: 1 << 20}
	s.failures = readcache.New(settings, func(ctx context.Context, asked failureSpan) (contract.FailureList, error) {
		all, complete, err := job.ListFailures(ctx, s.db, asked.since, asked.until, fault.Ours, 200_000)
		return contract.FailureList{Since: asked.since, Until: asked.until, Complete: complete, Causes: response.Documents(all, func(f job.Failures) contract.Failure {
			return contract.Failure{Code: string(f.Code), Kind: string(f.Kind), Count: f.Count, LastAt: f.LastAt, Jobs: f.Newest}
		})}, err
	}, func(list contract.FailureList) int { return 500 * (1 + len(list.Causes)) })
}
