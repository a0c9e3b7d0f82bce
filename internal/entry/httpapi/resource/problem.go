package resource

import (
	"net/http"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/job"
)

// Statuses is the one place where a kind of error gets its HTTP status.
var Statuses = map[fault.Kind]int{
	fault.KindInternal:         http.StatusInternalServerError,
	fault.KindInvalid:          http.StatusBadRequest,
	fault.KindUnauthenticated:  http.StatusUnauthorized,
	fault.KindForbidden:        http.StatusForbidden,
	fault.KindNotFound:         http.StatusNotFound,
	fault.KindMethodNotAllowed: http.StatusMethodNotAllowed,
	fault.KindTooLarge:         http.StatusRequestEntityTooLarge,
	fault.KindUnsupported:      http.StatusUnsupportedMediaType,
	fault.KindLength:           http.StatusLengthRequired,
	fault.KindTimeout:          http.StatusRequestTimeout,
	fault.KindHeaders:          http.StatusRequestHeaderFieldsTooLarge,
	fault.KindConflict:         http.StatusConflict,
	fault.KindMismatch:         http.StatusPreconditionFailed,
	fault.KindReused:           http.StatusUnprocessableEntity,
	fault.KindLimited:          http.StatusTooManyRequests,
	fault.KindUnavailable:      http.StatusServiceUnavailable,
}

// Problem describes an error; in an answer the caller adds instance and request id.
func Problem(f *fault.Error) contract.Problem {
	p := contract.Problem{Type: "/problems#" + string(f.Code), Title: f.Code.Title(), Status: Statuses[f.Code.Kind()],
		Detail: f.Message, Code: string(f.Code),
		DeclineCode: f.DeclineCode, Advice: f.Advice}
	if a := f.About; a.ID != "" {
		p.About = &contract.About{Kind: contract.AboutKind(a.Kind), ID: a.ID, JobID: a.JobID}
	}
	if !f.RetryAt.IsZero() {
		p.RetryAt = &f.RetryAt
	}
	for _, field := range f.Fields {
		p.Errors = append(p.Errors, contract.FieldError{Pointer: field.Pointer, Detail: field.Detail})
	}
	return p
}

// problemOfJob describes why a job failed.
func problemOfJob(p *job.Problem) *contract.Problem {
	if p == nil {
		return nil
	}
	described := Problem(p.Err())
	return &described
}
