package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Proof opens the proof document of a draw, as it is: canonical JSON, for triprize verify
// or for DrawProof. It may be long, so it is a stream. Close it. A read that fails, also
// with io.ErrUnexpectedEOF, means that the document is not complete: what was read before is
// no proof. ctx bounds the whole reading. Before the draw the error has CodeStateConflict.
func (c *Client) Proof(ctx context.Context, campaign CampaignID) (io.ReadCloser, error) {
	r := getDrawProof(campaign)
	body, err := retried(ctx, c.retry, r, func() (io.ReadCloser, error) { return c.openProof(ctx, r) })
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", r, err)
	}
	return body, nil
}

// openProof sends the request once. The time limit of calls is for the head of the answer.
func (c *Client) openProof(ctx context.Context, r request) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.timeout, func() { cancel(errSilent) })
	response, err := c.open(ctx, r, nil)
	if !late.Stop() && err == nil {
		err = errSilent
		_ = response.Body.Close()
	}
	if err != nil {
		cancel(err)
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return &proofBody{ReadCloser: response.Body, end: func() { cancel(context.Canceled) }}, nil
	}
	defer cancel(nil)
	defer func() { _ = response.Body.Close() }()
	answer, err := c.read(response)
	if err != nil {
		return nil, err
	}
	return nil, problemOf(response, answer)
}

// errSilent means that a server has not begun to answer within the time limit of a call.
var errSilent = errors.New("no answer in time")

// proofBody is the body of an answer that is read by the caller.
type proofBody struct {
	io.ReadCloser
	end func()
}

// Close ends the request.
func (b *proofBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
