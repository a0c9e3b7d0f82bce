// Package lease leases due rows to workers: payments, refunds, webhook endpoints.
//
// A row of such a table is an [Item]. It has four columns for this package:
//
//   - due_at: when a worker must process it next; null: not before it is woken.
//   - lease_until: the end of the lease of its worker, by the clock of the database.
//   - version: the fence. Every claim and every write of a worker increments it and names
//     the version that the worker has read. A worker that was stopped for longer than its
//     lease writes nothing, see [ErrFenced].
//   - wakes: grows when something happens to the item from outside. A write whose worker
//     has not seen all of that leaves the item due at once.
//
// A task in the queue only makes the processing of an item earlier. An item is due again when
// the lease of its worker ends, so neither a lost task nor a dead worker loses an item.
//
// This package owns no table: a topic names its own with a [Table], and adds its columns to the
// statements.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
)

// ErrFenced means that an item has changed since it was read: another worker has leased it, or
// an operator has decided about it. Nothing was written.
var ErrFenced = errors.New("lease: the item has changed since it was read")

// Item names a row at a version.
type Item struct {
	ID      uuid.UUID `json:"id"`
	Version int64     `json:"version"`
	Kind    string    `json:"-"` // of its tasks
}

// Task returns a task for the item. It has an id of its own: tasks of one item may follow
// each other, and all but the first of a version do nothing.
func (i Item) Task() queue.Task {
	payload, err := json.Marshal(i)
	if err != nil { // an id and a number
		panic(err)
	}
	return queue.Task{ID: uuidv7.New(), Kind: i.Kind, Payload: payload}
}

// Tasks returns tasks for items.
func Tasks(items []Item) []queue.Task {
	tasks := make([]queue.Task, len(items))
	for i, one := range items {
		tasks[i] = one.Task()
	}
	return tasks
}

// ItemOf returns the item of a task.
func ItemOf(t queue.Task) (i Item, err error) {
	if err := json.Unmarshal(t.Payload, &i); err != nil {
		return Item{}, fmt.Errorf("lease.ItemOf: task %s: %w", t.ID, err)
	}
	i.Kind = t.Kind
	return i, nil
}

// Table is a table of items. Its fields are SQL.
type Table struct {
	Name string
	As   string // how the other fields call a row
	Key  string // the column of the id
	Kind string // of its tasks: an expression
	Open string // must hold of a row that is claimed or woken
	Due  string // must hold of a row that is due, beside due_at
}

// row is the table in a statement, under the name of a row.
func (a Table) row() string { return a.Name + ` ` + a.As }

// key is the id of a row, and item its Item.
func (a Table) key() string  { return a.As + `.` + a.Key }
func (a Table) item() string { return a.key() + `, ` + a.As + `.version, ` + a.Kind }

// Free is the condition of rows that no worker has leased.
func (a Table) Free() string {
	return `(` + a.As + `.lease_until IS NULL OR ` + a.As + `.lease_until <= clock_timestamp())`
}

// Claim leases an item to a worker for lease. ok is false when it has changed since item
// was read, another worker has leased it, or it is not open. Until the worker writes, the item is
// due when the lease ends. columns and values are set with it; in values, now.at is the
// moment of the claim, lease before lease_until. The claimed row is read with returning.
func Claim[T any](ctx context.Context, db postgres.DB, a Table, item Item, lease time.Duration, columns, values, returning string, scan pgx.RowToFunc[T]) (row T, ok bool, err error) {
	row, err = postgres.CollectOne(ctx, db, scan, `
		UPDATE `+a.row()+`
		SET version = `+a.As+`.version + 1, (lease_until, due_at`+columns+`) = (
			SELECT now.at + $3 * interval '1 second', now.at + $3 * interval '1 second'`+values+` FROM (SELECT clock_timestamp() AS at) now)
		WHERE `+a.Key+` = $1 AND version = $2 AND `+a.Open+` AND `+a.Free()+`
		RETURNING `+returning, item.ID, item.Version, lease.Seconds())
	ok, err = postgres.Found(err)
	return row, ok, fault.At(err, "lease.Claim(%s %s)", a.Name, item.ID)
}

// Handover is what a write does with the lease of the worker.
type Handover struct {
	Extend time.Duration  // the lease is renewed for it; 0: the lease is released
	Next   *time.Duration // after it an item whose lease is released is due; nil: not before it is woken
	Seen   int            // wakes, when the item was read: a later one makes it due at once
}

// Write returns the statement with which the worker that has an item sets columns of its
// row. It changes one row or, if the worker is fenced or the guard does not hold, none:
// see [Fenced]. args are those of set and guard, from $6 on. Afterwards the version is one
// more.
func (a Table) Write(item Item, h Handover, set, guard string, args ...any) (sql string, all []any) {
	if h.Extend > 0 {
		h.Next = &h.Extend
	}
	var dueIn *float64
	if h.Next != nil {
		seconds := h.Next.Seconds()
		dueIn = &seconds
	}
	return `
		UPDATE ` + a.row() + `
		SET version = version + 1,
		    lease_until = CASE WHEN $3::float8 > 0 THEN clock_timestamp() + $3 * interval '1 second' END,
		    due_at = CASE WHEN wakes > $4 AND $3::float8 = 0 THEN clock_timestamp() ELSE clock_timestamp() + $5::float8 * interval '1 second' END, ` + set + `
		WHERE ` + a.Key + ` = $1 AND version = $2` + guard, append([]any{item.ID, item.Version, h.Extend.Seconds(), h.Seen, dueIn}, args...)
}

// Fenced returns ErrFenced unless a write has changed as many rows as it should.
func Fenced(item Item, tag pgconn.CommandTag, rows int) error {
	if tag.RowsAffected() != int64(rows) {
		return fmt.Errorf("%s: %w", item.ID, ErrFenced)
	}
	return nil
}

// TakeDue returns up to limit items that are due and that no worker has leased, the oldest
// first. They are due again after again, in case their tasks are lost. Concurrent callers get
// different items.
func (a Table) TakeDue(ctx context.Context, db postgres.DB, again time.Duration, limit int) ([]Item, error) {
	return a.takeDue(ctx, db, `true`, again, limit)
}

// TakeDueOf is TakeDue for the items with some ids.
func (a Table) TakeDueOf(ctx context.Context, db postgres.DB, ids []uuid.UUID, again time.Duration) ([]Item, error) {
	return a.takeDue(ctx, db, a.Key+` = ANY($3)`, again, len(ids), ids)
}

func (a Table) takeDue(ctx context.Context, db postgres.DB, which string, again time.Duration, limit int, args ...any) ([]Item, error) {
	due, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Item], `
		UPDATE `+a.row()+` SET due_at = clock_timestamp() + $1 * interval '1 second'
		FROM (SELECT `+a.Key+` FROM `+a.row()+`
		      WHERE `+which+` AND due_at <= clock_timestamp() AND `+a.Free()+` AND `+a.Due+`
		      ORDER BY due_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) d
		WHERE `+a.key()+` = d.`+a.Key+`
		RETURNING `+a.item(), append([]any{again.Seconds(), limit}, args...)...)
	return due, fault.At(err, "lease.TakeDue(%s)", a.Name)
}

// requeue makes items that [Table.TakeDue] has taken due at once again: their tasks could
// not be enqueued. It does not change items that have changed meanwhile.
func (a Table) requeue(ctx context.Context, db postgres.DB, items []Item) error {
	ids, versions := Split(items)
	_, err := db.Exec(ctx, `
		UPDATE `+a.row()+` SET due_at = clock_timestamp()
		FROM (SELECT `+a.key()+` FROM `+a.row()+` JOIN unnest($1::uuid[], $2::bigint[]) AS item (id, version) ON `+a.key()+` = item.id
		      WHERE `+a.As+`.version = item.version AND `+a.As+`.lease_until IS NULL ORDER BY `+a.key()+` FOR NO KEY UPDATE OF `+a.As+` SKIP LOCKED) f
		WHERE `+a.key()+` = f.`+a.Key, ids, versions)
	return fault.At(err, "lease.requeue(%s)", a.Name)
}

// Snooze releases the item of a worker that has done nothing. The item is due after pause.
func (a Table) Snooze(ctx context.Context, db postgres.DB, item Item, pause time.Duration) error {
	_, err := db.Exec(ctx, `
		UPDATE `+a.row()+` SET version = version + 1, lease_until = NULL, due_at = clock_timestamp() + $3 * interval '1 second'
		WHERE `+a.Key+` = $1 AND version = $2`, item.ID, item.Version, pause.Seconds())
	return fault.At(err, "lease.Snooze(%s)", a.Name)
}

// requeueTimeout bounds the end of an Enqueue whose own time is over.
const requeueTimeout = 2 * time.Second

// Enqueue enqueues tasks for items that [Table.TakeDue] has taken, and returns for how many. Those
// that it could not enqueue are due at once again.
func (a Table) Enqueue(ctx context.Context, db postgres.DB, client *queue.Client, due []Item) (n int, err error) {
	for i, item := range due {
		if err := client.Enqueue(ctx, item.Task()); err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
			defer cancel()
			return i, errors.Join(err, a.requeue(ctx, db, due[i:]))
		}
	}
	return len(due), nil
}

// Woken are the assignments that wake a row.
const Woken = `wakes = wakes + 1, due_at = greatest(clock_timestamp(), lease_until)`

// Wake makes open items due at once: something has happened to them. For an item that a worker
// has leased, that is when the worker writes or the lease ends. named is a query of their ids. Wake reads the items
// that it has found with returning. It does not change their versions.
func Wake[T any](ctx context.Context, db postgres.DB, a Table, named, returning string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	woken, err := postgres.Collect(ctx, db, scan, `
		WITH locked AS (SELECT `+a.Key+` FROM `+a.Name+` WHERE `+a.Key+` = ANY(ARRAY(`+named+`)) ORDER BY `+a.Key+` FOR NO KEY UPDATE)
		UPDATE `+a.row()+` SET `+Woken+` FROM locked l WHERE `+a.key()+` = l.`+a.Key+` AND `+a.Open+` RETURNING `+returning, args...)
	return woken, fault.At(err, "lease.Wake(%s)", a.Name)
}

// OldestDue returns for how long the oldest item is overdue that no worker has leased; 0: none is.
func (a Table) OldestDue(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT greatest(coalesce((SELECT clock_timestamp() - due_at FROM `+a.row()+`
			WHERE due_at <= clock_timestamp() AND `+a.Free()+` AND `+a.Due+` ORDER BY due_at LIMIT 1), interval '0'), interval '0')`).Scan(&wait)
	return wait, fault.At(err, "lease.OldestDue(%s)", a.Name)
}

// Split returns the ids of items, and their versions.
func Split(items []Item) (ids []uuid.UUID, versions []int64) {
	ids, versions = make([]uuid.UUID, len(items)), make([]int64, len(items))
	for i, one := range items {
		ids[i], versions[i] = one.ID, one.Version
	}
	return ids, versions
}
