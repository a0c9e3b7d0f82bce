package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is a refusal: of a request, or of a job that has failed.
//
// Code is empty when the answer is not from Triprize but, for example, from a proxy
// in front of it; Status is then that of the answer.
type Error struct {
	Problem
	RetryAfter time.Duration // how long to wait, by the server; 0 when it does not say
}

// Error returns status, code, detail, and the request id, which is in the server's log.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d", e.Status)
	for _, part := range []string{e.Code, e.Detail} {
		if part != "" {
			text.WriteString(" " + part)
		}
	}
	if e.RequestID != "" {
		text.WriteString(" (request " + e.RequestID + ")")
	}
	return text.String()
}

// ApprovalRequested says that nothing was done yet: another person must approve what an operator has asked for. A call with
// the same key, or [Client.GetApproval], tells what became of it. Calls of apps never have it.
type ApprovalRequested struct{ Approval Approval }

// approvals is where they are.
const approvals = "/v1/approvals/"

// Error says what waits.
func (e *ApprovalRequested) Error() string {
	return fmt.Sprintf("%s needs another person's approval: request %s is %s", e.Approval.Operation, e.Approval.ID, e.Approval.State)
}

// asType finds the first error of type T in the tree of err. (errors.AsType needs Go 1.26.)
func asType[T error](err error) (found T, ok bool) {
	ok = errors.As(err, &found)
	return found, ok
}

// problemOf turns any answer into an Error.
func problemOf(response *http.Response, body []byte) *Error {
	e := &Error{}
	if err := json.Unmarshal(body, &e.Problem); err != nil || e.Code == "" {
		e.Problem = Problem{Title: http.StatusText(response.StatusCode), Detail: strings.ToLower(http.StatusText(response.StatusCode))}
		if elsewhere := response.Header.Get("Location"); elsewhere != "" {
			e.Detail += ", to " + elsewhere // not followed: the base URL must be wrong
		}
	}
	e.Status, e.RetryAfter = response.StatusCode, retryAfter(response.Header)
	if e.RequestID == "" {
		e.RequestID = response.Header.Get("X-Request-ID")
	}
	return e
}
