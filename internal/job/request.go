package job

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/tracing"
	"triprize/internal/trail"
)

// Request is what a job is made from.
type Request struct {
	ID         uuid.UUID // of the job, if this request is the first with its key
	Client     string
	Key        string
	Hash       [sha256.Size]byte // fingerprint of the request
	Kind       Kind
	CampaignID uuid.UUID // zero: none
	UserID     string    // empty: none
	Owner      string    // the client whose user it is; empty: Client
	Payload    json.RawMessage
	Retention  time.Duration // how long the job is kept at least
	HTTPStatus int           // of the answer to a command that succeeds; the entry point chooses it
	By         By            // of a draw; not stored
	Actor      *trail.Actor  // the operator who asks; nil: the audit trail has no row of it
	Origin
}

// Ref is a job and the campaign it concerns.
type Ref struct {
	ID         uuid.UUID
	CampaignID uuid.UUID
	Trace      string // its traceparent, if its trace is recorded
	Attempts   int    // of a job that was delivered before
}

// Ref returns the job that the request makes.
func (r Request) Ref() Ref {
	ref := Ref{ID: r.ID, CampaignID: r.CampaignID}
	return ref.In(r.Traceparent)
}

// In returns the job with its trace, if that is recorded.
func (r Ref) In(traceparent string) Ref {
	if tracing.Recorded(traceparent) {
		r.Trace = traceparent
	}
	return r
}

// Traces yields the traces of jobs that are recorded, by the id of the job.
func Traces(refs []Ref) iter.Seq2[uuid.UUID, string] {
	return func(yield func(uuid.UUID, string) bool) {
		for _, ref := range refs {
			if ref.Trace != "" && !yield(ref.ID, ref.Trace) {
				return
			}
		}
	}
}

// TracesOf is Traces for the jobs that requests make.
func TracesOf(requests []Request) iter.Seq2[uuid.UUID, string] {
	return func(yield func(uuid.UUID, string) bool) {
		for i := range requests {
			if r := &requests[i]; tracing.Recorded(r.Traceparent) && !yield(r.ID, r.Traceparent) {
				return
			}
		}
	}
}

// By is what has triggered a draw.
type By string

// What triggers draws.
const (
	BySellOut  By = "sell_out"
	BySaleEnd  By = "sale_end"
	ByOperator By = "operator" // over HTTP
	BySweep    By = "sweep"    // its job was given up
)

// DrawRequest returns the request for the job that draws a sold-out campaign. The
// first job of a campaign has the key lottery-draw-{id}. A new job, after the first
// was given up, needs a suffix. from is empty when a sweep makes it.
func DrawRequest(campaignID uuid.UUID, by By, suffix string, retention time.Duration, from Origin) Request {
	key := "lottery-draw-" + campaignID.String() + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindDraw, CampaignID: campaignID, Retention: retention, By: by, Origin: from}
}

// UnsoldRequest returns the request for the job that cancels a campaign because its sale
// ended before everything was sold. There is one for each end of a sale: an end that was
// moved is another one. A new job, after the first was given up, needs a suffix.
func UnsoldRequest(campaignID uuid.UUID, end time.Time, payload []byte, suffix string, retention time.Duration) Request {
	key := "unsold-" + campaignID.String() + "-" + end.UTC().Format("20060102T150405.000000Z") + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Retention: retention}
}
