package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Filter selects jobs of a list. Empty fields select all.
type Filter struct {
	Client     string // whose they are: others never learn of its jobs
	KeyScope   string // that their idempotency keys begin with
	CampaignID uuid.UUID
	UserID     string
	Kind       Kind
	State      State
	Code       fault.Code // of the problem of a failed job
	Key        string     // the idempotency key, as it was sent
	Reference  string     // of the payment that a purchase was ordered with
}

// frequent are the kinds that crowds make. Of all others there are few, and an index finds
// them: jobs_of_kind, whose condition is that of notFrequent.
var frequent = []Kind{KindPurchase, KindCancellation, KindHoldCreate, KindHoldExtend, KindWalletOpen, KindWalletCredit, KindWalletDebit, KindTransferCreate,
	KindAuthorizationCreate, KindAuthorizationCapture, KindAuthorizationVoid}

const notFrequent = `j.kind NOT IN ('purchase', 'cancellation', 'hold-create', 'hold-extend', 'wallet-open', 'wallet-credit', 'wallet-debit', 'transfer-create',
	'authorization-create', 'authorization-capture', 'authorization-void')`

// openJobs are the jobs that may be open: those of messages, and those that payments lead.
// No index knows the state of a job, because finalizing one would have to write to it.
// OFFSET 0 has each looked up by its id.
const openJobs = `(
	SELECT j.* FROM (
		SELECT unnest(jobs) AS id FROM outbox_messages
		UNION SELECT job_id FROM payments WHERE finished_at IS NULL
		UNION SELECT cancel_job FROM payments WHERE finished_at IS NULL AND cancel_job IS NOT NULL) o
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = o.id OFFSET 0) j)`

// The jobs of a key, for all clients and for one. The index begins with the client, so each client is
// looked up by itself: there are few. Keys of users with tokens have a scope, and are not found here.
const (
	jobsOfKey = `(
	SELECT j.* FROM (SELECT name FROM api_clients UNION ALL SELECT unnest(ARRAY['` + System + `', '` + Tool + `'])) c (name)
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE client = c.name AND idempotency_key = ? OFFSET 0) j)`
	jobOfKey = `(SELECT * FROM jobs WHERE client = ? AND idempotency_key = ? OFFSET 0)`
)

// List returns jobs newest first, and the id before which the next page begins: zero after
// the last one. It goes along the index of the user, of a kind that is rare, of the client,
// or without a client of the campaign; for open states it looks at the open jobs, for a key without a
// user at those of the key. The other fields are looked up among [postgres.ListWindow] jobs at most: then a page may be short, or empty,
// and not be the last.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Job, next uuid.UUID, err error) {
	l := postgres.List[Job]{From: "jobs", Alias: "j", Columns: columns, Scan: scan, ID: func(j Job) uuid.UUID { return j.ID }}
	also := l.Also
	open := f.State != "" && !f.State.Final()
	switch {
	case f.Key != "" && f.UserID == "":
		l.From, l.FromArgs, also = jobsOfKey, []any{f.Key}, l.Only
		if f.Client != "" {
			l.From, l.FromArgs = jobOfKey, []any{f.Client, f.Key}
		}
		f.Key = ""
	case open:
		l.From, also = openJobs, l.Only // there are few
		if f.Client != "" {
			also(`j.client = ?`, f.Client)
		}
	default:
		f = f.along(&l)
	}
	if f.KeyScope != "" {
		l.Only(`starts_with(j.idempotency_key, ?)`, f.KeyScope)
	}
	if f.CampaignID != uuid.Nil {
		also(`j.campaign_id = ?`, f.CampaignID)
	}
	for _, c := range [][2]string{{`j.user_id = ?`, f.UserID}, {`j.kind = ?`, string(f.Kind)}, {`j.state = ?`, string(f.State)}, {`j.problem ->> 'code' = ?`, string(f.Code)},
		{`substring(j.idempotency_key FROM '[^\n]*$') = ?`, f.Key}, {`j.payload #>> '{payment,reference}' = ?`, f.Reference}} {
		if condition, value := c[0], c[1]; value != "" {
			also(condition, value)
		}
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("job.List: %w", err)
	}
	return list, next, nil
}

// along chooses the index for a list, and returns what is left of the filter to look up.
// Jobs of other clients are never among those that a page looks at.
func (f Filter) along(l *postgres.List[Job]) (rest Filter) {
	rare := f.Kind != "" && !slices.Contains(frequent, f.Kind)
	switch {
	case f.UserID != "":
		l.Along("user_id", f.UserID)
		f.UserID = ""
	case f.CampaignID != uuid.Nil && f.Client == "": // others may have sold most of a campaign
		l.Along("campaign_id", f.CampaignID)
		f.CampaignID = uuid.Nil
	case rare:
		l.Along("kind", string(f.Kind))
		l.Only(notFrequent)
		f.Kind = ""
	case f.Client != "":
		l.Along("client", f.Client)
		f.Client = ""
	}
	if f.Client != "" {
		l.Only(`j.client = ?`, f.Client)
	}
	return f
}
