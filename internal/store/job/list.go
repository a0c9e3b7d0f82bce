package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Filter selects jobs of a list. What is empty selects all.
type Filter struct {
	Client     string // who made the request: others never learn of its jobs
	CampaignID uuid.UUID
	UserID     string
	Kind       Kind
	State      State
	Code       fault.Code // of the problem of a failed job
}

// frequent are the kinds that crowds make. Of all others there are few, and an index finds
// them (jobs_of_kind, which must say the same).
var frequent = []Kind{KindPurchase, KindCancellation, KindHoldCreate, KindHoldExtend, KindWalletOpen, KindWalletCredit, KindWalletDebit, KindTransferCreate,
	KindAuthorizationCreate, KindAuthorizationCapture, KindAuthorizationVoid}

// notFrequentSQL is the condition of that index.
const notFrequentSQL = `j.kind NOT IN ('purchase', 'cancellation', 'hold-create', 'hold-extend', 'wallet-open', 'wallet-credit', 'wallet-debit', 'transfer-create',
	'authorization-create', 'authorization-capture', 'authorization-void')`

// openJobs are the jobs that may be open: those of messages, and those that payments lead.
// No index knows the state of a job, because settling one would have to write to it.
const openJobs = `(
	SELECT j.* FROM (
		SELECT unnest(jobs) AS id FROM outbox_messages
		UNION SELECT job_id FROM payments WHERE finished_at IS NULL
		UNION SELECT cancel_job FROM payments WHERE finished_at IS NULL AND cancel_job IS NOT NULL) o
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = o.id) j)`

// List returns jobs newest first, and the id before which the next page begins: zero after
// the last one. A page looks at [postgres.ListWindow] jobs of the client, campaign and user
// at most: with a state, a code or a frequent kind it may be short, or empty, and not be the
// last. For open states it looks at the open jobs.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Job, next uuid.UUID, err error) {
	l := postgres.List[Job]{From: "jobs", Alias: "j", Columns: columns, Scan: scan, ID: func(j Job) uuid.UUID { return j.ID }}
	also := l.Also
	if f.State != "" && !f.State.Final() {
		l.From, also = openJobs, l.Only // there are few
	}
	if f.Client != "" {
		l.Only(`j.client = ?`, f.Client)
	}
	if f.CampaignID != uuid.Nil {
		l.Only(`j.campaign_id = ?`, f.CampaignID)
	}
	if f.UserID != "" {
		l.Only(`j.user_id = ?`, f.UserID)
	}
	switch {
	case f.Kind == "":
	case slices.Contains(frequent, f.Kind):
		also(`j.kind = ?`, string(f.Kind))
	default:
		l.Only(`j.kind = ? AND `+notFrequentSQL, string(f.Kind))
	}
	if f.State != "" {
		also(`j.state = ?`, string(f.State))
	}
	if f.Code != "" {
		also(`j.problem ->> 'code' = ?`, string(f.Code))
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("job.List: %w", err)
	}
	return list, next, nil
}
