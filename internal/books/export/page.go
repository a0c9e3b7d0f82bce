package export

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/failpoint"
)

const (
	// pageRows is how many rows of a table a statement reads, and how many are in memory.
	pageRows = 2000
	// heldUp is how long a row may be younger than its id, which is its job's, and ahead how much older: clocks differ.
	heldUp, ahead = 7 * 24 * time.Hour, time.Hour
)

// window is part of each row: where its page has looked.
type window struct {
	Key  string `json:"-"`
	Left bool   `json:"-"` // it is the last that the page has looked at, and not one of the export
}

func (w *window) read() window { return *w }

// windowed returns SQL that reads the rows of a table after key $1, so many at most, and returns those that are wanted. The
// last one is always among them, so that the next page begins there: without any index for what is wanted, each statement
// has a bound.
func windowed(table string, rows int, ids, wanted, columns, joins string) string {
	return fmt.Sprintf(`
		WITH page AS MATERIALIZED (SELECT * FROM %s WHERE %s ORDER BY id LIMIT %d)
		SELECT p.id::text AS key, NOT coalesce(%[4]s, false) AS left, %s FROM page p %s
		WHERE %[4]s OR p.id = (SELECT id FROM page ORDER BY id DESC LIMIT 1)
		ORDER BY p.id`, table, ids, rows, wanted, columns, joins)
}

// paged yields the rows of a windowed statement, page by page from a key on, and nil after a page without any: whoever
// waits for the first row learns that there is progress.
func paged[T any, P interface {
	*T
	read() window
}](ctx context.Context, e *Export, first string, until time.Time, sql string, args ...any,
) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		from, key := time.Time{}, first
		for {
			failpoint.Hit("export.page", func() []string { return []string{key} })
			page, err := books.Page(ctx, e.db, pgx.RowToAddrOfStructByNameLax[T], sql, append([]any{key}, args...)...)
			if err != nil {
				yield(nil, fmt.Errorf("export.%s after %s: %w", e.Kind, key, err))
				return
			}
			if len(page) == 0 {
				return
			}
			found := false
			for _, row := range page {
				at := P(row).read()
				if key = at.Key; at.Left {
					continue
				}
				if found = true; !yield(row, nil) {
					return
				}
			}
			if !found && !yield(nil, nil) {
				return
			}
			if id, err := uuid.Parse(key); err == nil {
				if from.IsZero() {
					from = uuidv7.MadeAt(id)
				}
				e.share = shareOf(from, uuidv7.MadeAt(id), until)
			}
		}
	}
}

// inPeriod yields rows that were created in the period, by ids that say when they were made: $2 is the last id, $3 and $4
// the period, $5 the client.
func inPeriod[T any, P interface {
	*T
	read() window
}](ctx context.Context, e *Export, sql string,
) iter.Seq2[any, error] {
	last := e.Period.To.Add(ahead)
	return paged[T, P](ctx, e, uuidv7.FirstAt(e.Period.From.Add(-heldUp)).String(), sooner(last, time.Now()), sql,
		uuidv7.FirstAt(last), e.Period.From, e.Period.To, e.Client)
}

// ids and created are the conditions of inPeriod.
const (
	ids     = `id > $1 AND id < $2`
	created = `(p.created_at >= $3 AND p.created_at < $4)`
)

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// shareOf is how far at is on the way from one moment to another.
func shareOf(from, at, to time.Time) float64 {
	if !to.After(from) {
		return 1
	}
	return min(max(float64(at.Sub(from))/float64(to.Sub(from)), 0), 1)
}
