package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Accepted is what became of a request: the job that it has, or a refusal.
type Accepted struct {
	Job      Job
	Replayed bool  // the job is that of an earlier request with the same key
	Reused   bool  // the key belongs to a different request; Job is that of the key
	Err      error // a refusal that was not recorded: there is no job, and the key stays free
}

// ErrClosed refuses a purchase whose key is free, and whose campaign never sells again.
var ErrClosed = errors.New("the campaign never sells again")

// errErased refuses a request whose key is free, and whose user is being erased.
var errErased = fault.New(fault.StateConflict, "the user is being erased: wait until the job of that is done")

// Accept makes jobs from requests and, in the same commit, one message for each kind. A request
// whose key is known gets the job of that key; a purchase of a closed campaign gets no other. On a pool this is a transaction of its own, in one round
// trip, and one more when keys are known. The caller dispatches the messages after the commit.
func Accept(ctx context.Context, db postgres.DB, requests []Request) (done []Accepted, messages []Message, err error) {
	return accept(ctx, db, requests, make([]error, len(requests)))
}

// accept is Accept for requests of which some are refused: those get only the job of their key.
func accept(ctx context.Context, db postgres.DB, requests []Request, refusals []error) (done []Accepted, messages []Message, err error) {
	in := newRecords(requests, refusals)
	if messages, err = in.insert(ctx, db, Queued); err == nil {
		jobs := make(map[slot]Job, len(requests))
		for _, r := range requests {
			if at, isMade := in.made[r.ID]; isMade {
				j := r.job(Queued)
				j.AcceptedAt = at
				jobs[r.slot()] = j
			}
		}
		done, err = in.done(ctx, db, jobs, func(i int) error {
			switch r := requests[i]; {
			case refusals[i] != nil:
				return refusals[i]
			case r.Kind == KindPurchase && in.closed[r.CampaignID]:
				return ErrClosed
			}
			return in.why(i)
		})
	}
	return done, messages, fault.At(err, "job.Accept")
}

// Insert makes one job of [System] with its message in the caller's transaction. When there is a job with
// the same key already, nothing changes and there is no message. The caller dispatches the message after the commit.
func Insert(ctx context.Context, tx pgx.Tx, r Request) ([]Message, error) {
	messages, err := newRecords([]Request{r}, []error{nil}).insert(ctx, tx, Queued)
	for i := range messages {
		messages[i].By, messages[i].From = r.By, r.Origin
	}
	return messages, fault.At(err, "job.Insert")
}

// slot is the unique key of a request.
type slot struct{ client, key string }

func (r Request) slot() slot { return slot{r.Client, r.Key} }

// records makes jobs from requests. A request whose key is known gets the job of
// that key. Any number of processes may use the same keys at once: all insert in
// the order of (client, key), so they cannot deadlock, and exactly one insert wins.
type records struct {
	requests []Request
	refusals []error // of each request; one that is refused makes no job
	order    []int   // indexes of requests that make the job of their key if it is free, each key once, in the order of (client, key)
	made     map[uuid.UUID]time.Time
	closed   map[uuid.UUID]bool // campaigns of purchases that never sell again
	erased   map[string]bool    // users of requests that are being erased
}

// why returns why a request that is not refused, and not of a closed campaign, has no job.
func (in *records) why(i int) error {
	if in.erased[in.requests[i].UserID] {
		return errErased
	}
	return nil
}

// newRecords returns the records of requests. The first request with a key makes the
// job of that key.
func newRecords(requests []Request, refusals []error) *records {
	in := &records{requests: requests, refusals: refusals, order: make([]int, 0, len(requests)), made: make(map[uuid.UUID]time.Time), closed: make(map[uuid.UUID]bool), erased: make(map[string]bool)}
	seen := make(map[slot]bool, len(requests))
	for i, r := range requests {
		if at := r.slot(); refusals[i] == nil && !seen[at] {
			seen[at] = true
			in.order = append(in.order, i)
		}
	}
	slices.SortFunc(in.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(requests[a].Client, requests[b].Client), cmp.Compare(requests[a].Key, requests[b].Key))
	})
	return in
}

// insert makes jobs in a state, but for purchases of campaigns that never sell again, and for users that are being erased: no job is
// needed to refuse these. Queued jobs get a message for each kind, and those of operators a row of the
// audit trail. A job that is final from the start belongs to a command and has had its one attempt.
//
// It is one statement: requests that are accepted a second time, after an error, may have made
// their jobs and a message before.
func (in *records) insert(ctx context.Context, db postgres.DB, state State) (messages []Message, err error) {
	if len(in.order) == 0 {
		return nil, nil
	}
	n := len(in.order)
	ids, clients, keys := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	hashes, kinds, campaigns := make([][]byte, n), make([]string, n), make([]*uuid.UUID, n)
	users, payloads, retentions := make([]*string, n), make([][]byte, n), make([]float64, n)
	requestIDs, traces, owners := make([]*string, n), make([]*string, n), make([]string, n)
	var sellers []uuid.UUID // campaigns of purchases, each once
	isSeller := make(map[uuid.UUID]bool, 1)
	var changes []trail.Entry   // of operators
	of := make(map[Kind]int, 1) // where in messages the jobs of a kind are
	for at, i := range in.order {
		r := in.requests[i]
		ids[at], clients[at], keys[at], hashes[at], kinds[at] = r.ID, r.Client, r.Key, r.Hash[:], string(r.Kind)
		campaigns[at], users[at] = postgres.Nullable(r.CampaignID), postgres.Nullable(r.UserID)
		payloads[at], retentions[at] = r.Payload, r.Retention.Seconds()
		if r.Payload == nil && r.Owner != "" && r.Owner != r.Client { // whose user it is
			payloads[at] = fmt.Appendf(nil, `{"client":%q}`, r.Owner)
		}
		requestIDs[at], traces[at], owners[at] = postgres.Nullable(r.RequestID), postgres.Nullable(r.Traceparent), cmp.Or(r.Owner, r.Client)
		if r.Kind == KindPurchase && !isSeller[r.CampaignID] {
			isSeller[r.CampaignID] = true
			sellers = append(sellers, r.CampaignID)
		}
		if r.Actor != nil && state == Queued { // a command is recorded with its answer
			changes = append(changes, r.Actor.Entry(r.ID, nil, r.Payload))
		}
		if _, known := of[r.Kind]; !known && state == Queued {
			of[r.Kind] = len(messages)
			messages = append(messages, Message{ID: uuidv7.New(), Kind: r.Kind, Delivery: 1})
		}
	}
	also, args := "", []any{ids, clients, keys, hashes, kinds, campaigns, users, payloads, retentions, string(state), state.Final(), sellers, requestIDs, traces, owners}
	if state == Queued {
		names, kinds := make([]uuid.UUID, len(messages)), make([]string, len(messages))
		for i, m := range messages {
			names[i], kinds[i] = m.ID, string(m.Kind)
		}
		also, args = `, messages AS (
			INSERT INTO outbox_messages (id, kind, jobs)
			SELECT m.id, kind, array_agg(made.id ORDER BY made.id)
			FROM unnest($16::uuid[], $17::text[]) AS m (id, kind) JOIN made USING (kind)
			GROUP BY m.id, kind)`, append(args, names, kinds)
	}
	if len(changes) > 0 { // the statement for apps stays as it is
		also, args = also+`, `+trail.InsertOf("$18", `SELECT id FROM made`), append(args, trail.Rows(changes...))
	}
	var b pgx.Batch
	b.Queue(`
		WITH closed AS MATERIALIZED (SELECT id FROM campaigns WHERE id = ANY($12) AND state IN ('drawing', 'completed', 'cancelled')),
		erased AS MATERIALIZED (SELECT user_id, payload ->> 'client' AS client FROM jobs WHERE kind = 'erasure' AND user_id = ANY($7) AND state NOT IN ('succeeded', 'failed')),
		made AS (
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, request_id, traceparent, expires_at, state, attempts, finished_at)
			SELECT id, client, key, hash, kind, campaign_id, user_id, payload, request_id, traceparent, clock_timestamp() + retention * interval '1 second',
			       $10, CASE WHEN $11 THEN 1 ELSE 0 END, CASE WHEN $11 THEN clock_timestamp() END
			FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::uuid[], $7::text[], $8::json[], $9::float8[], $13::text[], $14::text[], $15::text[])
			     WITH ORDINALITY AS r (id, client, key, hash, kind, campaign_id, user_id, payload, retention, request_id, traceparent, owner, ordinal)
			WHERE NOT (kind = 'purchase' AND campaign_id IN (SELECT id FROM closed)) AND NOT EXISTS (SELECT FROM erased e WHERE e.user_id = r.user_id AND (e.client IS NULL OR r.owner IN (e.client, '`+EveryClient+`')))
			ORDER BY ordinal
			ON CONFLICT (client, idempotency_key) DO NOTHING
			RETURNING id, kind, accepted_at
		)`+also+`
		SELECT id, accepted_at, NULL FROM made UNION ALL SELECT id, NULL, NULL FROM closed UNION ALL SELECT NULL, NULL, user_id FROM erased`, args...).Query(in.scanMade)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if state != Queued {
		return nil, nil
	}
	for _, i := range in.order {
		if r := in.requests[i]; !in.made[r.ID].IsZero() {
			to := &messages[of[r.Kind]]
			to.Jobs = append(to.Jobs, r.Ref())
		}
	}
	return slices.DeleteFunc(messages, func(m Message) bool { return len(m.Jobs) == 0 }), nil
}

// scanMade reads the jobs that were made, and the closed campaigns, which have no time.
func (in *records) scanMade(rows pgx.Rows) error {
	clear(in.made)
	clear(in.closed)
	clear(in.erased)
	var id *uuid.UUID
	var at *time.Time
	var user *string
	_, err := pgx.ForEachRow(rows, []any{&id, &at, &user}, func() error {
		switch {
		case user != nil:
			in.erased[*user] = true
		case at == nil:
			in.closed[*id] = true
		default:
			in.made[*id] = *at
		}
		return nil
	})
	return err
}

// job is the job that a request makes.
func (r Request) job(state State) Job {
	return Job{ID: r.ID, Client: r.Client, Key: r.Key, Hash: r.Hash, Kind: r.Kind,
		CampaignID: postgres.Nullable(r.CampaignID), UserID: postgres.Nullable(r.UserID), Status: Status{State: state}, Origin: r.Origin}
}

// errVanished means that a key was taken at the insert and free at the read: the
// sweep old-records deleted the old job in between. The caller may try again.
var errVanished = errors.New("the job of a taken key has just been deleted")

// done returns the outcome of every request, in the order of requests; jobs are those of keys that were free. It
// reads the jobs of keys that were known already. That must be a statement after the insert: a job in conflict
// with the insert may be newer than the insert's snapshot. why returns why a key may have no job; nil: it has one.
func (in *records) done(ctx context.Context, db postgres.DB, jobs map[slot]Job, why func(i int) error) ([]Accepted, error) {
	var others []int // of each key the candidate, and those that may make no job
	var keys []Request
	for i, r := range in.requests {
		if _, known := jobs[r.slot()]; !known && (in.refusals[i] != nil || slices.Contains(in.order, i)) {
			others, keys = append(others, i), append(keys, r)
		}
	}
	if len(others) > 0 {
		found, err := ofKeys(ctx, db, keys)
		if err != nil {
			return nil, err
		}
		maps.Copy(jobs, found)
	}
	for _, i := range others {
		if _, known := jobs[in.requests[i].slot()]; !known && why(i) == nil {
			return nil, fault.Wrap(fault.Unavailable, errVanished, "the Idempotency-Key is being deleted after its retention; retry with the same key")
		}
	}
	done := make([]Accepted, len(in.requests))
	for i, r := range in.requests {
		if j, known := jobs[r.slot()]; known {
			done[i] = outcome(j, r)
		} else {
			done[i].Err = cmp.Or(why(i), ErrClosed) // of two requests with a key one may be of a closed campaign
		}
	}
	return done, nil
}

// outcome is what a request gets when j is the job of its key.
func outcome(j Job, r Request) Accepted {
	return Accepted{Job: j, Replayed: j.ID != r.ID, Reused: j.Hash != r.Hash}
}
