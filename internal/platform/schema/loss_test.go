package schema_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

// What a Down section drops is what the catalog has no more. What it changes or deletes in tables
// that stay, the catalog does not show.
func TestWhatTheDownOfEveryMigrationDropsIsNamedInIt(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	up(t, m)
	catalog := func() (all []string) {
		t.Helper()
		rows, err := db.Query(t.Context(), `
			SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
			UNION SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'`)
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, name := range slices.Backward(files(t)) {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		_, down, _ := strings.Cut(string(text), "-- +goose Down")
		named := schema.LostBy(string(text))
		if found := regexp.MustCompile(`(?m)^\s*(?:DELETE FROM|UPDATE|TRUNCATE)\b.*`).FindString(down); found != "" && len(named) == 0 {
			t.Errorf("%s does not say what this loses: %s", name, found)
		}
		before := catalog()
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatalf("%s cannot be taken back: %v", name, err)
		}
		after := catalog()
		for _, what := range before {
			table, _, _ := strings.Cut(what, ".")
			if !slices.Contains(after, what) && !slices.Contains(named, what) && !slices.Contains(named, table) {
				t.Errorf("%s loses %s, and does not say so: \"-- loses: %s\"", name, what, what)
			}
		}
		for _, what := range named {
			if !slices.Contains(before, what) {
				t.Errorf("%s loses %s, which was never there", name, what)
			}
		}
	}
}

// Migrations as they will come: of the real ones each only makes tables.
var madeUp = fstest.MapFS{
	"00101_first.sql":  {Data: []byte("-- loses: shelves, books\n-- +goose Up\nCREATE TABLE shelves (id int);\nCREATE TABLE books (id int);\n-- +goose Down\nDROP TABLE shelves, books;")},
	"00102_column.sql": {Data: []byte("-- loses: books.pages\n-- +goose Up\nALTER TABLE books ADD COLUMN pages int;\n-- +goose Down\nALTER TABLE books DROP COLUMN pages;")},
	"00103_index.sql":  {Data: []byte("-- +goose Up\nCREATE INDEX of_books ON books (id);\n-- +goose Down\nDROP INDEX of_books;")},
}

func TestWhatIsLostIsCounted(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m, err := schema.NewOn(stdlib.OpenDBFromPool(db), madeUp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	up(t, m)
	servers.Exec(t, db, `INSERT INTO books SELECT n, nullif(n % 2, 0) FROM generate_series(1, 5) AS n; INSERT INTO shelves VALUES (1)`)
	for _, want := range []struct{ name, lost string }{
		{"00103_index.sql", ""},
		{"00102_column.sql", "books.pages: 3 values"},
		{"00101_first.sql", "shelves: 1 row, books: 5 rows"},
		{"", ""},
	} {
		name, losses, err := m.Losses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range losses {
			lines = append(lines, l.String())
		}
		if got := strings.Join(lines, ", "); name != want.name || got != want.lost {
			t.Errorf("%s loses %q, want %s and %q", name, got, want.name, want.lost)
		}
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
