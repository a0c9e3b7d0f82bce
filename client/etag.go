package client

import "errors"

// ErrNotModified means that a document is still the one whose ETag was given.
var ErrNotModified = errors.New("client: not modified")

// WithETag reads a document only if it has changed: a campaign, the list of campaigns, the
// board of a campaign, a position. The first call, with an empty tag, fills the tag in; later
// calls with it return ErrNotModified while the document is the same, and no document.
//
//	var tag string
//	board, err := c.ListPositions(ctx, campaign, params, client.WithETag(&tag))
//	…
//	newer, err := c.ListPositions(ctx, campaign, params, client.WithETag(&tag))
//	if errors.Is(err, client.ErrNotModified) { … } // board is still right
//
// A tag belongs to one request: another campaign, or other params, need a tag of their own.
func WithETag(tag *string) CallOption {
	return func(r *request) {
		r.etag = tag
		if tag == nil {
			r.wrong = errors.New("client: WithETag needs a place for the tag")
		}
	}
}
