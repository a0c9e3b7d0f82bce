package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

type thing struct {
	ID    uuid.UUID
	Owner string
	Good  bool
}

// things makes a table with an index on owners.
func things(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := servers.DB(t)
	servers.Exec(t, db, `CREATE TABLE things (id uuid PRIMARY KEY, owner text NOT NULL, good boolean NOT NULL); CREATE INDEX ON things (owner, id)`)
	return db
}

func insertThings(t *testing.T, db *pgxpool.Pool, list ...thing) {
	t.Helper()
	for _, one := range list {
		servers.Exec(t, db, `INSERT INTO things VALUES ($1, $2, $3)`, one.ID, one.Owner, one.Good)
	}
}

func thingsOf(owner string, window int) *postgres.List[thing] {
	l := &postgres.List[thing]{From: "things", Alias: "t", Columns: "t.id, t.owner, t.good", Scan: pgx.RowToStructByPos[thing],
		ID: func(one thing) uuid.UUID { return one.ID }, Window: window}
	l.Along("owner", owner)
	return l
}

// readAll reads a list to its end. Before each further page it calls between.
func readAll(t *testing.T, db postgres.DB, l *postgres.List[thing], limit int, between func()) (all []thing, pages int) {
	t.Helper()
	for p := (postgres.ListPage{Limit: limit}); ; between() {
		page, next, err := l.Page(t.Context(), db, p)
		if err != nil || len(page) > limit {
			t.Fatal(len(page), err)
		}
		all = append(all, page...)
		if pages++; next == uuid.Nil {
			return all, pages
		}
		p.Before = next
	}
}

func TestAListHasEveryRowOnceWhileRowsAreInserted(t *testing.T) {
	t.Parallel()
	db := things(t)
	var mine []thing
	for range 40 {
		mine = append(mine, thing{uuidv7.New(), "mina", len(mine)%5 == 0})
		insertThings(t, db, mine[len(mine)-1], thing{uuidv7.New(), "otto", true})
	}
	slices.Reverse(mine)
	more := func() { insertThings(t, db, thing{uuidv7.New(), "mina", true}, thing{uuidv7.New(), "otto", true}) }
	if all, pages := readAll(t, db, thingsOf("mina", 0), 10, more); !slices.Equal(all, mine) || pages != 4 {
		t.Errorf("%d of %d on %d pages", len(all), len(mine), pages)
	}
	insertedLater := func(one thing) bool { return !slices.Contains(mine, one) }
	good := slices.DeleteFunc(slices.Clone(mine), func(one thing) bool { return !one.Good })
	for _, window := range []int{1, 3, 7, 1000} { // however little a page looks at
		l := thingsOf("mina", window)
		l.Also(`t.good`)
		all, pages := readAll(t, db, l, 3, more)
		if all = slices.DeleteFunc(all, insertedLater); !slices.Equal(all, good) {
			t.Errorf("window %d: %v on %d pages", window, all, pages)
		}
	}
}

func TestAPageIsTheLastWhenNothingComesAfterIt(t *testing.T) {
	t.Parallel()
	db := things(t)
	for range 6 {
		insertThings(t, db, thing{uuidv7.New(), "mina", false})
	}
	for _, limit := range []int{2, 3, 6, 7} {
		if _, pages := readAll(t, db, thingsOf("mina", 0), limit, func() {}); pages != (5+limit)/limit {
			t.Errorf("%d pages of %d", pages, limit)
		}
	}
	for _, window := range []int{2, 3, 6, 7} {
		l := thingsOf("mina", window)
		l.Also(`t.good`)
		if all, pages := readAll(t, db, l, 100, func() {}); len(all) > 0 || pages != (5+window)/window {
			t.Errorf("%v on %d pages that look at %d each", all, pages, window)
		}
	}
}

// When rows come between the two statements of a short page, its window has moved: the
// next page must not have a row again.
func TestAShortPageIsNotFollowedByItsOwnRows(t *testing.T) {
	t.Parallel()
	db := things(t)
	for i := range 8 {
		insertThings(t, db, thing{uuidv7.New(), "mina", i == 2}) // the sixth, seen from the newest
	}
	l := thingsOf("mina", 6)
	l.Also(`t.good`)
	inserting := &between{DB: db, do: func() { insertThings(t, db, thing{uuidv7.New(), "mina", false}, thing{uuidv7.New(), "mina", false}) }}
	page, next, err := l.Page(t.Context(), inserting, postgres.ListPage{Limit: 5})
	if err != nil || len(page) != 1 || next == uuid.Nil {
		t.Fatal(page, next, err)
	}
	if again, _, err := l.Page(t.Context(), db, postgres.ListPage{Before: next, Limit: 5}); err != nil || len(again) > 0 {
		t.Errorf("once more: %v, %v", again, err)
	}
}

// between is a database that does something once, before its second query.
type between struct {
	postgres.DB
	queries int
	do      func()
}

// Query implements postgres.DB.
func (b *between) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if b.queries++; b.queries == 2 {
		b.do()
	}
	return b.DB.Query(ctx, sql, args...)
}
