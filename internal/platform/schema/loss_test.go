package schema_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/stdlib"

	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

// told returns what schema says is lost, one line each, when the newest migration is taken back.
func told(t *testing.T, m *schema.Migrator) (name string, lines []string) {
	t.Helper()
	name, losses, err := m.Losses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		lines = append(lines, l.String())
	}
	return name, lines
}

// A Down section that does more than delete tables, columns and rows says in a note above
// the statement why nothing is lost: "-- keeps: why".
func TestOfEveryMigrationItIsKnownWhatTakingItBackLoses(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "-- +goose Down") {
			t.Errorf("%s cannot be taken back", name)
		}
		for _, what := range schema.Unknown(string(text)) {
			t.Errorf("%s: nobody can tell what this loses; if it is nothing, say above it why: \"-- keeps: why\"\n\t%s", name, what)
		}
	}
}

// Migrations as they will come: of the real ones each only makes tables.
var madeUp = fstest.MapFS{
	"00101_first.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE shelves (id int, label text DEFAULT 'none');\nCREATE TABLE books (id int);\n-- +goose Down\nDROP TABLE shelves, books;")},
	"00102_column.sql":  {Data: []byte("-- +goose Up\nALTER TABLE books ADD COLUMN pages int DEFAULT 0;\n-- +goose Down\nALTER TABLE books DROP COLUMN pages;")},
	"00103_rows.sql":    {Data: []byte("-- +goose Up\nINSERT INTO shelves VALUES (9);\n-- +goose Down\nDELETE FROM shelves WHERE id > 2;")},
	"00104_keeps.sql":   {Data: []byte("-- +goose Up\nUPDATE books SET id = id + 1;\n-- +goose Down\n-- keeps: it is only counted back\nUPDATE books SET id = id - 1;")},
	"00105_unknown.sql": {Data: []byte("-- +goose Up\nSELECT 1;\n-- +goose Down\nUPDATE shelves SET label = '';")},
}

func TestWhatIsLostIsCountedFromTheStatementsOfAMigration(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m, err := schema.NewOn(stdlib.OpenDBFromPool(db), madeUp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	up(t, m)
	servers.Exec(t, db, `INSERT INTO books SELECT n, n % 2 FROM generate_series(1, 5) AS n; INSERT INTO shelves VALUES (1), (2), (3)`)
	for _, want := range []struct{ name, lost string }{
		{"00105_unknown.sql", "an unknown number of rows: UPDATE shelves SET label = ''"},
		{"00104_keeps.sql", ""},
		{"00103_rows.sql", "shelves: 2 rows"},
		{"00102_column.sql", "books.pages: 3 values"}, // not those that have the default
		{"00101_first.sql", "shelves: 2 rows, books: 5 rows"},
		{"", ""},
	} {
		name, lines := told(t, m)
		if got := strings.Join(lines, ", "); name != want.name || got != want.lost {
			t.Errorf("%s loses %q, want %s and %q", name, got, want.name, want.lost)
		}
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeletionsAreFoundInEveryFormAndTheRestIsUnknown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"DROP TABLE a, b;":                "a b",
		"DROP TABLE IF EXISTS a CASCADE;": "a",
		"ALTER TABLE a DROP COLUMN b,\n  DROP CONSTRAINT c,\n  DROP COLUMN IF EXISTS d;": "a.b a.d",
		"ALTER TABLE a DROP COLUMN b;\nDROP TABLE a;":                                    "a",
		"DELETE FROM a WHERE b = 1;":                                                     "a where b = 1",
		"DELETE FROM a;":                                                                 "a",
		"DROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE TABLE a (b int);":                  "",
		"ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0) NOT VALID; -- DROP TABLE a;":       "",
		"UPDATE a SET b = 1;":                                                            "? UPDATE a SET b = 1",
		"DROP INDEX i; DROP TABLE a; DROP TABLE b;":                                      "a b",
		"COMMENT ON TABLE a IS 'x; TRUNCATE b';":                                         "? TRUNCATE b'",
		"ALTER TABLE a DROP b, DROP CONSTRAINT IF EXISTS c, ALTER COLUMN d DROP NOT NULL, ALTER e DROP DEFAULT;": "a.b",
		"DROP TABLE a, other.b;": "? DROP TABLE a, other.b",
		"-- +goose StatementBegin\nDELETE FROM a; DELETE FROM b;\n-- +goose StatementEnd": "? DELETE FROM a; DELETE FROM b",
		"TRUNCATE a;": "? TRUNCATE a",
		"ALTER TABLE a ALTER COLUMN b TYPE smallint;":                                                  "? ALTER TABLE a ALTER COLUMN b TYPE smallint",
		"-- keeps: it was one\nUPDATE a SET b = 1;\nTRUNCATE a;":                                       "? TRUNCATE a",
		"-- keeps: \nTRUNCATE a;":                                                                      "? TRUNCATE a",
		"-- +goose StatementBegin\nDO $$ BEGIN\nRAISE EXCEPTION 'x';\nEND $$;\n-- +goose StatementEnd": "",
		"-- +goose StatementBegin\nDO $$ BEGIN\nUPDATE a SET b = 1;\nEND $$;\n-- +goose StatementEnd":  "? DO $$ BEGIN UPDATE a SET b = 1; END $$",
	} {
		if got := strings.Join(schema.Deletions("-- +goose Up\nDROP TABLE z;\n-- +goose Down\n"+text), " "); got != want {
			t.Errorf("%s\n\tis %q, want %q", text, got, want)
		}
	}
}

func TestAMigrationOfALaterProgramIsNotTakenBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	newest, err := schema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, newest+1)
	if _, _, err := migrator(t, db).Losses(t.Context()); err == nil || !strings.Contains(err.Error(), "use the program that applied it") {
		t.Errorf("got %v", err)
	}
}
