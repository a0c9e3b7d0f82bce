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
// with io.ErrUnexpectedEOF, means that the document is not complete: the part that was read
// is no proof. ctx bounds the whole reading. Before the draw the error has CodeStateConflict.
func (c *Client) Proof(ctx context.Context, campaign CampaignID) (io.ReadCloser, error) {
	return c.long(ctx, getDrawProof(campaign))
}

// DrawList opens the frozen list of a campaign, as it is: canonical JSON, for type DrawList.
// It is a stream as Proof is. Before the freeze the error has CodeStateConflict.
func (c *Client) DrawList(ctx context.Context, campaign CampaignID) (io.ReadCloser, error) {
	return c.long(ctx, getDrawList(campaign))
}

// Export opens an export of a kind, such as purchases, as CSV: a header and a line for each row, for package encoding/csv.
// As with Proof, a read that fails means that the table is not complete. Close it.
func (c *Client) Export(ctx context.Context, kind string, params GetExportParams) (io.ReadCloser, error) {
	return c.export(ctx, kind, params, "text/csv")
}

// ExportLines is Export as JSON lines: an object for each row, whose members are the columns of the CSV.
func (c *Client) ExportLines(ctx context.Context, kind string, params GetExportParams) (io.ReadCloser, error) {
	return c.export(ctx, kind, params, "application/x-ndjson")
}

func (c *Client) export(ctx context.Context, kind string, params GetExportParams, media string) (io.ReadCloser, error) {
	r := getExport(kind, params)
	r.accept = media + ", application/problem+json"
	return c.long(ctx, r)
}

// UserData opens the copy of what is stored about a user, a JSON document of type [UserData]. As with Proof, a read that fails
// means that it is not complete. Close it.
func (c *Client) UserData(ctx context.Context, user UserParam, params GetUserDataParams) (io.ReadCloser, error) {
	return c.long(ctx, getUserData(user, params))
}

// long opens an answer that may be long, and is read by the caller.
func (c *Client) long(ctx context.Context, r request) (io.ReadCloser, error) {
	body, err := retried(ctx, c.retry, r, func() (io.ReadCloser, error) { return c.openLong(ctx, r) })
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", r, err)
	}
	return body, nil
}

// openLong sends the request once. The time limit of calls is for the head of the answer.
func (c *Client) openLong(ctx context.Context, r request) (io.ReadCloser, error) {
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
		return &longBody{ReadCloser: response.Body, end: func() { cancel(context.Canceled) }}, nil
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

// longBody is the body of an answer that is read by the caller.
type longBody struct {
	io.ReadCloser
	end func()
}

// Close ends the request.
func (b *longBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
