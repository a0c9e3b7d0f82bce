package problemdocs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"triprize/internal/domain/fault"
)

const (
	indexPath        = "/problems"
	docsPath         = "/docs"
	exampleRequestID = "6b0c1f0e-4a55-4c0b-9d5e-2f8a7c31d904"
)

// where is the place in which a client finds a problem.
type where string

const (
	inAnswer where = ""
	inJob    where = "job"
	inEither where = "either"
)

// arrives returns the sentence that says where a problem with this status is found.
func (p where) arrives(status int) string {
	inAJob := fmt.Sprintf("the `problem` of a failed job: the answer that brings the job has the status 200 or 202, and the %d stands in the problem", status)
	switch p {
	case inJob:
		return "As " + inAJob + "."
	case inEither:
		return fmt.Sprintf("As the answer to a request, with the status %d; or as %s.", status, inAJob)
	default:
		return fmt.Sprintf("As the answer to a request, with the status %d.", status)
	}
}

// example is one occurrence of a problem.
type example struct {
	Where    where
	Headers  []string // of the answer, besides those of every problem
	document `yaml:",inline"`
}

// document is a problem document (RFC 9457), with its members in the order of answers.
type document struct {
	Type        string        `json:"type"`
	Title       string        `json:"title"`
	Status      int           `json:"status"`
	Detail      string        `json:"detail"`
	Instance    string        `json:"instance,omitempty"`
	Code        fault.Code    `json:"code"`
	RequestID   string        `json:"request_id,omitempty"`
	Errors      []fault.Field `json:"errors,omitempty"`
	About       fault.About   `json:"about,omitzero"`
	DeclineCode string        `json:"decline_code,omitempty" yaml:"decline_code"`
	Advice      string        `json:"advice,omitempty"`
}

// sample is an example as it is shown.
type sample struct {
	Head string // status line and header fields; empty for the problem of a job
	Body string // the problem document
}

func (e example) sample(code fault.Code, status int) (shown sample, err error) {
	d := e.document
	d.Type, d.Title, d.Status, d.Code = indexPath+"/"+string(code), code.Title(), status, code
	if e.Where != inJob { // the problem of a job belongs to no request
		d.RequestID = exampleRequestID
		head := append([]string{"HTTP/1.1 " + statusLine(status), "Content-Type: application/problem+json", "X-Request-ID: " + exampleRequestID}, e.Headers...)
		shown.Head = strings.Join(head, "\n") + "\n"
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(d)
	shown.Body = body.String()
	return shown, err
}
