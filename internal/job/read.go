package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
	"triprize/internal/trail"
)

const (
	statusColumns = `j.state, j.result, j.problem, j.http_status, j.attempts, j.finished_at, j.purchase_id, j.progress`
	columns       = `j.id, j.client, j.idempotency_key, j.request_hash, j.kind, j.campaign_id, j.user_id, j.accepted_at,
	coalesce(j.request_id, ''), coalesce(j.traceparent, ''), ` + statusColumns
)

// targets are what the columns of a status are scanned into. A []byte is copied; a json.RawMessage would be read as
// JSON first.
func (s *Status) targets(before ...any) []any {
	return append(before, &s.State, (*[]byte)(&s.Result), &s.Problem, &s.HTTPStatus, &s.Attempts, &s.FinishedAt, &s.PurchaseID, &s.Progress)
}

func scan(row pgx.CollectableRow) (j Job, err error) {
	var hash []byte
	err = row.Scan(j.targets(&j.ID, &j.Client, &j.Key, &hash, &j.Kind, &j.CampaignID, &j.UserID, &j.AcceptedAt, &j.RequestID, &j.Traceparent)...)
	copy(j.Hash[:], hash)
	return j, err
}

// Get returns a job, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (Job, error) {
	jobs, err := GetAll(ctx, db, []uuid.UUID{id})
	if err != nil {
		return Job{}, err
	}
	if len(jobs) == 0 {
		return Job{}, fault.New(fault.NotFound, "there is no job %s", id)
	}
	return jobs[0], nil
}

// GetAll returns those of the jobs that exist, in any order.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Job, error) {
	// One look-up by primary key per id; "id = ANY" can make the planner scan the table.
	jobs, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id) j`, ids)
	return jobs, fault.At(err, "job.GetAll")
}

// OfKey returns the job of an earlier request with the same key, and false when
// there is none.
func OfKey(ctx context.Context, db postgres.DB, r Request) (Accepted, bool, error) {
	earlier, ok, err := OfKeys(ctx, db, []Request{r})
	if err != nil {
		return Accepted{}, false, err
	}
	return earlier[0], ok[0], nil
}

// OfKeys returns the jobs of earlier requests with the same keys; ok[i] is false
// when there is none.
func OfKeys(ctx context.Context, db postgres.DB, requests []Request) (earlier []Accepted, ok []bool, err error) {
	jobs, err := ofKeys(ctx, db, requests)
	if err != nil {
		return nil, nil, fmt.Errorf("job.OfKeys: %w", err)
	}
	earlier, ok = make([]Accepted, len(requests)), make([]bool, len(requests))
	for i, r := range requests {
		if j, known := jobs[r.slot()]; known {
			earlier[i], ok[i] = outcome(j, r), true
			earlier[i].Replayed = true
		}
	}
	return earlier, ok, nil
}

// ofKeys returns the jobs of the keys of requests, by one index look-up per key.
//
// A job whose commit did not wait for the synchronous standby may be lost with the primary, and a reader cannot see
// that. So with such a standby the transaction that finds jobs writes to the write-ahead log: its own commit waits,
// also for all commits before it.
func ofKeys(ctx context.Context, db postgres.DB, requests []Request) (map[slot]Job, error) {
	clients, keys := make([]string, len(requests)), make([]string, len(requests))
	for i, r := range requests {
		clients[i], keys[i] = r.Client, r.Key
	}
	found, err := postgres.Collect(ctx, db, scan, `
		WITH found AS MATERIALIZED (
			SELECT `+columns+` FROM unnest($1::text[], $2::text[]) AS k (client, key)
			CROSS JOIN LATERAL (SELECT * FROM jobs WHERE client = k.client AND idempotency_key = k.key) j),
		written AS MATERIALIZED (
			SELECT pg_logical_emit_message(true, 'triprize', '') FROM found WHERE current_setting('synchronous_standby_names') <> '' LIMIT 1)
		SELECT found.* FROM found LEFT JOIN written ON true`, clients, keys)
	jobs := make(map[slot]Job, len(found))
	for _, j := range found {
		jobs[slot{j.Client, j.Key}] = j
	}
	return jobs, err
}

// Payload returns what a job is made from.
func Payload(ctx context.Context, db postgres.DB, id uuid.UUID) (payload json.RawMessage, err error) {
	err = db.QueryRow(ctx, `SELECT payload FROM jobs WHERE id = $1`, id).Scan(&payload)
	return payload, fault.At(err, "job.Payload(%s)", id)
}

// CampaignCancellations returns the jobs that cancel campaigns, or have done so, by
// campaign. It leaves out campaigns that have none, or none any more.
func CampaignCancellations(ctx context.Context, db postgres.DB, campaigns []uuid.UUID) (map[uuid.UUID]Job, error) {
	// Of several requests one is carried out: the first that has recorded progress.
	// The others fail.
	found, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS c (id)
		CROSS JOIN LATERAL (SELECT * FROM jobs
			WHERE kind = 'campaign-cancellation' AND campaign_id = c.id AND state <> 'failed'
			ORDER BY progress IS NULL, accepted_at LIMIT 1) j`, campaigns)
	of := make(map[uuid.UUID]Job, len(found))
	for _, j := range found {
		of[*j.CampaignID] = j
	}
	return of, fault.At(err, "job.CampaignCancellations")
}

// Continue begins a span in the trace of a job, see [tracing.Continue]. While tracing is off it reads
// nothing, and when the trace cannot be read there is no span.
func Continue(ctx context.Context, db postgres.DB, id uuid.UUID, name string, pairs ...string) (context.Context, tracing.Span) {
	if !tracing.On() {
		return ctx, tracing.Span{}
	}
	var traceparent string
	if err := db.QueryRow(ctx, `SELECT coalesce(traceparent, '') FROM jobs WHERE id = $1`, id).Scan(&traceparent); err != nil {
		return ctx, tracing.Span{}
	}
	return tracing.Continue(ctx, traceparent, name, append(pairs, tracing.JobID, id.String())...)
}

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

// openJobs are the jobs that may be open: those of messages, and those that payments end.
// No index knows the state of a job, because completing one would have to write to it.
// OFFSET 0 has each looked up by its id.
const openJobs = `(
	SELECT j.* FROM (
		SELECT unnest(jobs) AS id FROM outbox_messages
		UNION SELECT purchase_id FROM payments WHERE finished_at IS NULL
		UNION SELECT cancel_job FROM payments WHERE finished_at IS NULL AND cancel_job IS NOT NULL) o
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = o.id OFFSET 0) j)`

// The jobs of a key, for all clients and for one. The index begins with the client, so each client is
// looked up by itself: there are few. Keys of users with tokens have a scope, and are not found here.
const (
	jobsOfKey = `(
	SELECT j.* FROM (SELECT name FROM api_clients UNION ALL SELECT unnest(ARRAY['` + System + `', '` + Tool + `', '` + trail.Persons + `'])) c (name)
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE client = c.name AND idempotency_key = ? OFFSET 0) j)`
	jobOfKey = `(SELECT * FROM jobs WHERE client = ? AND idempotency_key = ? OFFSET 0)`
)

// List returns jobs newest first, and the id before which the next page begins: zero after
// the last one. It goes along the index of the user, of a kind that is rare, of the client,
// or without a client of the campaign; for open states it reads the open jobs, for a key without a
// user those of the key. The other fields are looked up among [postgres.ListWindow] jobs at most: then a page may be short, or empty,
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
	list, next, err = l.Page(ctx, db, p)
	return list, next, fault.At(err, "job.List")
}

// along chooses the index for a list, and returns what is left of the filter to look up.
// A page never reads jobs of other clients.
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

// Failures are the failed jobs of one code and kind.
type Failures struct {
	Code   fault.Code
	Kind   Kind
	Count  int
	LastAt time.Time
	Newest []uuid.UUID // ten at most
}

// ListFailures returns the jobs that failed with one of the codes, of those accepted from since until before until: the
// most frequent cause first. It reads the newest of these jobs along their ids, most of them; complete: there are no more.
func ListFailures(ctx context.Context, db postgres.DB, since, until time.Time, codes []fault.Code, most int) (all []Failures, complete bool, err error) {
	// One pass: no index knows the state of a job. The group without a code are all other jobs, which are only counted.
	read := 0
	all, err = postgres.Collect(ctx, db, func(row pgx.CollectableRow) (f Failures, err error) {
		err = row.Scan(&f.Code, &f.Kind, &f.Count, &f.LastAt, &f.Newest)
		read += f.Count
		return f, err
	}, `
		SELECT coalesce(code, ''), coalesce(kind, ''), n, coalesce(last_at, 'epoch'), ARRAY(SELECT id FROM unnest(ids) id ORDER BY id DESC LIMIT 10)
		FROM (SELECT code, kind, count(*) AS n, max(finished_at) AS last_at, array_agg(id) FILTER (WHERE code IS NOT NULL) AS ids
			FROM (SELECT id, finished_at, CASE WHEN code = ANY($4) THEN code END AS code, CASE WHEN code = ANY($4) THEN kind END AS kind
				FROM (SELECT id, kind, finished_at, CASE WHEN state = 'failed' THEN problem ->> 'code' END AS code
					FROM jobs WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3) j) j
			GROUP BY code, kind) j
		ORDER BY code IS NULL, n DESC, code, kind`, uuidv7.FirstAt(since), uuidv7.FirstAt(until), most+1, codes)
	if n := len(all); n > 0 && all[n-1].Code == "" {
		all = all[:n-1]
	}
	return all, read <= most, fault.At(err, "job.ListFailures")
}

// Backlog is what waits for workers, of one kind.
type Backlog struct {
	Kind     Kind
	Jobs     int           // of the oldest maxMessages messages; some of them may be final already
	Oldest   time.Duration // for how long the oldest queued job has waited; 0: none waits
	Job      uuid.UUID     // the oldest one
	Campaign uuid.UUID     // its campaign; zero: it has none
}

// maxMessages is how many messages of a kind are counted, those with the oldest jobs: the query costs the
// same, however long the backlog is.
const maxMessages = 400

// oldestMessages is how many of these are searched for the oldest queued job. A message whose
// jobs are all final is deleted in a moment.
const oldestMessages = 16

// ReadBacklog returns the backlog of each of the kinds that has messages. A job that has begun a purchase by
// card waits for others, and does not count as the oldest. The cost is maxMessages messages and
// oldestMessages * MaxJobs look-ups of jobs for each kind, at most.
func ReadBacklog(ctx context.Context, db postgres.DB, kinds ...Kind) (map[Kind]Backlog, error) {
	found, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Backlog], `
		SELECT k.kind, n.jobs, coalesce(clock_timestamp() - o.accepted_at, interval '0'),
		       coalesce(o.id, '00000000-0000-0000-0000-000000000000'), coalesce(o.campaign_id, '00000000-0000-0000-0000-000000000000')
		FROM unnest($1::text[]) AS k (kind)
		CROSS JOIN LATERAL (
			SELECT sum(cardinality(m.jobs)) AS jobs
			FROM (SELECT jobs FROM outbox_messages WHERE kind = k.kind ORDER BY jobs[1] LIMIT $2) m) n
		LEFT JOIN LATERAL (
			SELECT j.id, j.campaign_id, j.accepted_at
			FROM (SELECT jobs FROM outbox_messages WHERE kind = k.kind ORDER BY jobs[1] LIMIT $3) m
			CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id OFFSET 0) j
			WHERE j.state = 'queued' AND j.purchase_id IS NULL
			ORDER BY j.accepted_at LIMIT 1) o ON true
		WHERE n.jobs IS NOT NULL`, kinds, maxMessages, oldestMessages)
	all := make(map[Kind]Backlog, len(found))
	for _, one := range found {
		all[one.Kind] = one
	}
	return all, fault.At(err, "job.ReadBacklog")
}
