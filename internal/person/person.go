// Package person copies and erases what is stored about a person: a user id at a client.
//
// What there is about persons is in the tables' own words ([personal.Table]); package upkeep joins them. An [Eraser] runs
// the jobs that erase:
//
//		fence ─▶ is anything open? ─▶ passes over all tables, 100 rows in each transaction ─▶ a pass that finds nothing ─▶ forget the id
//
//	  - While a job is not final, package job makes no other job of its user. Transactions that are older than the fence may
//	    not know of it: they end first, and only then it is decided whether something is open.
//	  - The user id becomes a random pseudonym, other personal columns become empty, and rows that only say what a person
//	    did are deleted. A row that has changed since it was found is left to the next pass, and so are those of a pass that was interrupted.
//	  - The last pass is the search: nothing that is personal is left. Then the id is forgotten in the job itself. What stays
//	    is its HMAC, by which the audit finds rows that have come back, as from a backup.
//
// A person who returns under the same id is a new one.
//
// Failpoints, with the name of the table, that and the id of the job, or only the id:
//
//	person.begun   nothing is open, and nothing is erased yet
//	person.batch   a batch of a table is erased
//	person.forget  nothing is left, and the job is still queued
package person

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/personal"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Person is a user of an app.
type Person struct {
	Client string `json:"client,omitempty"` // empty: the user id at every client
	UserID string `json:"user_id"`
}

func (p Person) args(more ...any) []any {
	return append([]any{postgres.Nullable(p.Client), p.UserID}, more...)
}

// All is the client in place of each.
const All = job.EveryClient

// Stored is what there is about persons.
type Stored struct {
	Tables     []personal.Table // in the order in which they are erased: what is found by another table is before it
	Recipients string           // selects the clients and URLs to which events about a person were sent
}

// batchSize bounds the rows that a transaction changes.
const batchSize = 100

// longestScan bounds a statement that looks for rows: some are found by no index.
const longestScan = 5 * time.Minute

// inScan runs do in one snapshot, in which whole tables may be read.
func inScan(ctx context.Context, db postgres.Beginner, do func(tx pgx.Tx) error) error {
	return postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = %[1]d; SET LOCAL idle_in_transaction_session_timeout = %[1]d`, longestScan.Milliseconds())); err != nil {
			return err
		}
		if err := postgres.AllowScans(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

// Open returns what must end before a person can be erased: a state-conflict Error that lists it, or nil.
func (s Stored) Open(ctx context.Context, db postgres.Beginner, p Person) error {
	var open []fault.Field
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		for _, t := range s.Tables {
			if t.Open == "" {
				continue
			}
			rows, err := postgres.Collect(ctx, tx, pgx.RowTo[json.RawMessage], t.IsOpen(), p.args(nil, mostOpen+1)...)
			if err != nil {
				return err
			}
			for _, row := range rows {
				open = append(open, fault.Field{Pointer: "/user", Detail: describe(t.Name, row)})
			}
		}
		return nil
	})
	if err != nil || len(open) == 0 {
		return fault.At(err, "person.Open")
	}
	refusal := fault.New(fault.StateConflict, "the user has what is not over: it must end before it can be erased")
	if refusal.Fields = open; len(open) > mostOpen {
		refusal.Fields = append(open[:mostOpen:mostOpen], fault.Field{Pointer: "/user", Detail: "and more"})
	}
	return refusal
}

// mostQueued bounds the erasures of a client that wait: each reads whole tables, and those of others wait behind it.
const mostQueued = 100

// CheckQueued refuses an erasure of a client that has so many which wait: with a state-conflict Error.
func CheckQueued(ctx context.Context, db postgres.DB, client string) error {
	var queued int
	err := db.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE kind = 'erasure' AND client = $1 AND state = 'queued'`, client).Scan(&queued)
	if err == nil && queued >= mostQueued {
		err = fault.New(fault.StateConflict, "%d erasures of the client wait: ask again when one is done", queued)
	}
	return fault.At(err, "person.CheckQueued")
}

// mostOpen bounds the list of what is open, and what is read of a table for it.
const mostOpen = 20

// describe names a row that is open.
func describe(table string, document json.RawMessage) (detail string) {
	var row map[string]any
	numbers := json.NewDecoder(bytes.NewReader(document))
	numbers.UseNumber()
	_ = numbers.Decode(&row) // the database has made it
	detail = table
	for _, member := range []string{"id", "purchase_id", "state", "phase", "status", "balance", "held", "currency"} {
		if value := row[member]; value != nil && value != json.Number("0") && !(member == "purchase_id" && row["id"] != nil) {
			detail += fmt.Sprintf(" %v", value)
		}
	}
	return detail
}

// Recipient is whom events about a person were sent to.
type Recipient struct {
	Client string `json:"client"`
	Host   string `json:"host"`
}

// Copy writes the copy of what is stored about a person, as of one moment: the document UserData of the contract.
func (s Stored) Copy(ctx context.Context, db postgres.Beginner, p Person, w io.Writer) error {
	err := inScan(ctx, db, func(tx pgx.Tx) error {
		recipients, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[Recipient], personal.Given+s.Recipients, p.args(nil)...)
		if err != nil {
			return err
		}
		for i, r := range recipients {
			if at, err := url.Parse(r.Host); err == nil { // until here it is the URL
				recipients[i].Host = at.Host
			}
		}
		head, err := json.Marshal(map[string]any{"user_id": p.UserID, "client": cmp.Or(p.Client, All), "at": time.Now().UTC(), "recipients": append([]Recipient{}, recipients...)})
		if err != nil {
			return err
		}
		out := bufio.NewWriter(w)
		fmt.Fprintf(out, `%s,"data":[`, bytes.TrimSuffix(head, []byte("}")))
		for i, t := range s.Tables {
			if err := out.Flush(); err != nil { // what waits for the table sees that it is alive, and is seen to be
				return err
			}
			if i > 0 {
				_, _ = out.WriteString(",")
			}
			fmt.Fprintf(out, `{"table":%q,"purpose":%q,"until":%q,"rows":[`, t.Name, t.Why, t.Till)
			rows, err := tx.Query(ctx, t.Rows(), p.args(nil)...)
			if err != nil {
				return err
			}
			var document json.RawMessage
			between := ""
			if _, err := pgx.ForEachRow(rows, []any{&document}, func() error {
				_, err := fmt.Fprintf(out, "%s%s", between, document)
				between = ","
				return err
			}); err != nil {
				return err
			}
			_, _ = out.WriteString("]}")
		}
		_, _ = out.WriteString("]}\n")
		return out.Flush()
	})
	return fault.At(err, "person.Copy")
}

// Order is the payload of a job.
type Order struct {
	Person
	By     string `json:"by"` // role:client
	Reason string `json:"reason"`
}

// Result is the result of a job that has succeeded.
type Result struct {
	Erased map[string]int `json:"erased"` // rows, by table; empty: nothing was stored
}

// Eraser erases persons.
type Eraser struct {
	db     postgres.Pool
	scans  postgres.Pool // for what waits for no lock, and takes long
	stored Stored
	hasher keyring.Hasher
}

// NewEraser returns an Eraser. scans is the pool, and db may be a view of it for transactions that may wait for locks.
func NewEraser(db, scans postgres.Pool, stored Stored, hasher keyring.Hasher) *Eraser {
	return &Eraser{db, scans, stored, hasher}
}

// ErrSnoozed means that something has to end first: a transaction that is older than the job, or what a wallet has got meanwhile.
var ErrSnoozed = errors.New("person: the erasure waits")

// Run does a job. If something is open, it fails the job with a state-conflict Problem. ErrSnoozed leaves it queued, and so does a
// fault of the database; job.ErrFinal means that it is final already.
func (s *Eraser) Run(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	e, err := s.begin(ctx, ref)
	if err != nil {
		return job.Outcome{}, err
	}
	if !e.begun {
		switch refusal := s.stored.Open(ctx, s.db, e.Person); {
		case fault.CodeOf(refusal) == fault.StateConflict:
			return s.refuse(ctx, ref, refusal)
		case refusal != nil:
			return job.Outcome{}, refusal
		}
		if _, err := s.db.Exec(ctx, `UPDATE erasures SET begun_at = clock_timestamp() WHERE id = $1 AND begun_at IS NULL`, ref.ID); err != nil {
			return job.Outcome{}, fault.At(err, "person.Run(%s)", ref.ID)
		}
	}
	failpoint.Hit("person.begun", func() []string { return []string{ref.ID.String()} })
	for {
		for ; e.at < len(s.stored.Tables); e.at++ {
			t := s.stored.Tables[e.at]
			if err := s.erase(ctx, t, ref.ID, e); err != nil {
				return job.Outcome{}, fmt.Errorf("person.Run(%s): %s: %w", ref.ID, t.Name, err)
			}
		}
		again, err := s.again(ctx, ref.ID)
		if err != nil {
			return job.Outcome{}, err
		}
		if !again {
			failpoint.Hit("person.forget", func() []string { return []string{ref.ID.String()} })
			return s.forget(ctx, ref, e)
		}
		e.at = 0
	}
}

// again reports whether the pass that has ended found rows, and begins the next one then.
func (s *Eraser) again(ctx context.Context, id uuid.UUID) (again bool, err error) {
	err = s.db.QueryRow(ctx, `
		UPDATE erasures SET at = CASE WHEN found THEN 0 ELSE at END, found = false FROM (SELECT found AS again FROM erasures WHERE id = $1) was WHERE id = $1
		RETURNING was.again`, id).Scan(&again)
	return again, fault.At(err, "person.again(%s)", id)
}

// erasure is a row of erasures, with the order of its job.
type erasure struct {
	Order
	pseudonym string
	begun     bool
	at        int // the table that this pass comes to next
}

func (s *Eraser) begin(ctx context.Context, ref job.Ref) (e erasure, err error) {
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		var lock pgx.Batch // another worker may be about to end the erasure
		job.QueueLock(&lock, []uuid.UUID{ref.ID})
		if err := tx.SendBatch(ctx, &lock).Close(); err != nil {
			return err
		}
		known, err := job.Get(ctx, tx, ref.ID)
		if err != nil {
			return err
		}
		if known.State.Final() {
			return job.ErrFinal
		}
		payload, err := job.Payload(ctx, tx, ref.ID)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(payload, &e.Order); err != nil {
			return fmt.Errorf("the payload of job %s: %w", ref.ID, err)
		}
		if _, err := tx.Exec(ctx, `
			UPDATE erasures e SET id = $1, fence = pg_current_xact_id(), begun_at = NULL, at = 0 FROM jobs j
			WHERE j.id = e.id AND j.state = 'failed' AND j.user_id = $3 AND e.client IS NOT DISTINCT FROM $2 AND e.finished_at IS NULL`, ref.ID, postgres.Nullable(e.Client), e.UserID); err != nil {
			return err // of a job that was given up: its pseudonym stays the only one
		}
		if _, err := tx.Exec(ctx, `INSERT INTO erasures (id, client, pseudonym) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, ref.ID, postgres.Nullable(e.Client), personal.NewPseudonym()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT pseudonym, begun_at IS NOT NULL, at FROM erasures WHERE id = $1`, ref.ID).Scan(&e.pseudonym, &e.begun, &e.at)
	})
	if err != nil || e.begun {
		return e, err
	}
	older, err := postgres.OlderWriter(ctx, s.db, `(SELECT fence FROM erasures WHERE id = $1)`, ref.ID)
	if err == nil && older != "" {
		err = fmt.Errorf("%w: %s", ErrSnoozed, older)
	}
	return e, err
}

func (s *Eraser) refuse(ctx context.Context, ref job.Ref, refusal error) (outcome job.Outcome, err error) {
	outcome = job.Refused(ref.ID, refusal)
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := job.Complete(ctx, tx, &outcome); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM erasures WHERE id = $1 AND begun_at IS NULL`, ref.ID)
		return err
	})
	return outcome, fault.At(err, "person.refuse(%s)", ref.ID)
}

// errChanged means that a row with which others change has changed since it was found: the next pass finds it.
var errChanged = errors.New("person: a row has changed")

// erase erases what is left in a table, and stores that this pass has come beyond it. ErrSnoozed means that rows have to wait.
func (s *Eraser) erase(ctx context.Context, t personal.Table, id uuid.UUID, e erasure) error {
	type row struct{ Version, ID string }
	var left []row
	if len(t.Columns()) > 0 {
		if err := inScan(ctx, s.scans, func(tx pgx.Tx) (err error) {
			left, err = postgres.Collect(ctx, tx, pgx.RowToStructByPos[row], t.Left(), e.args(e.pseudonym)...)
			return err
		}); err != nil {
			return err
		}
	}
	erased := 0
	for batch := range slices.Chunk(left, batchSize) {
		versions, ids := make([]string, len(batch)), make([]string, len(batch))
		for i, r := range batch {
			versions[i], ids[i] = r.Version, r.ID
		}
		if err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			for _, with := range t.With {
				if _, err := tx.Exec(ctx, with, ids, e.pseudonym, e.UserID); err != nil {
					return err
				}
			}
			tag, err := tx.Exec(ctx, t.Erase(), e.args(e.pseudonym, versions)...)
			if err != nil {
				return err
			}
			if len(t.With) > 0 && int(tag.RowsAffected()) < len(batch) {
				return errChanged
			}
			erased += int(tag.RowsAffected())
			tag, err = tx.Exec(ctx, `UPDATE erasures SET found = true, rows = rows || jsonb_build_object($2::text, coalesce((rows ->> $2)::int, 0) + $3::int) WHERE id = $1 AND finished_at IS NULL`, id, t.Name, tag.RowsAffected())
			if err == nil && tag.RowsAffected() == 0 {
				err = job.ErrFinal // by another worker, while this one was paused: whom it finds now is a new person
			}
			return err
		}); errors.Is(err, errChanged) {
			if _, err := s.db.Exec(ctx, `UPDATE erasures SET found = true WHERE id = $1`, id); err != nil {
				return err
			}
			continue
		} else if err != nil {
			return err
		}
		failpoint.Hit("person.batch", func() []string { return []string{t.Name, t.Name + " " + id.String()} })
	}
	if len(left) > 0 && erased == 0 && t.When != "" {
		return fmt.Errorf("%w: %d rows are not %s", ErrSnoozed, len(left), t.When)
	}
	_, err := s.db.Exec(ctx, `UPDATE erasures SET at = $2 WHERE id = $1`, id, e.at+1)
	return err
}

// forget completes the job, and forgets the id in its own rows.
func (s *Eraser) forget(ctx context.Context, ref job.Ref, e erasure) (outcome job.Outcome, err error) {
	outcome.ID = ref.ID
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := trail.Forget(ctx, tx, e.UserID); err != nil {
			return err
		}
		var rows json.RawMessage
		if err := tx.QueryRow(ctx, `SELECT rows FROM erasures WHERE id = $1`, ref.ID).Scan(&rows); err != nil {
			return err
		}
		outcome.Result = json.RawMessage(`{"erased":` + string(rows) + `}`)
		if err := job.Complete(ctx, tx, &outcome); err != nil {
			return err
		}
		if err := job.Forget(ctx, tx, ref.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE erasures SET hash = $2, pseudonym = NULL, finished_at = clock_timestamp() WHERE id = $1`, ref.ID, s.hasher.Of(e.UserID))
		return err
	})
	return outcome, fault.At(err, "person.forget(%s)", ref.ID)
}
