package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Loss is what taking back a migration would delete.
type Loss struct {
	Table  string
	Column string // empty: whole rows
	Rows   int64  // rows that go, or rows whose value in the column goes
	// Unknown is a statement of which this program cannot tell what it deletes. The other
	// fields are empty then.
	Unknown string
}

// String returns such as "wallets: 3 rows" and "purchases.cancelled_at: 1 value".
func (l Loss) String() string {
	if l.Unknown != "" {
		return "an unknown number of rows: " + l.Unknown
	}
	what, unit := l.Table, "row"
	if l.Column != "" {
		what, unit = l.Table+"."+l.Column, "value"
	}
	if l.Rows != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%s: %d %s", what, l.Rows, unit)
}

// Losses returns the name of the newest migration that is applied, and what is lost when
// it is taken back now; an empty name when none is applied. It reads whole tables.
// Rows that are written afterwards are not counted.
func (m *Migrator) Losses(ctx context.Context) (name string, losses []Loss, err error) {
	version, err := m.provider.GetDBVersion(ctx)
	if err == nil {
		err = isBefore1(version)
	}
	if err != nil || version == 0 {
		return "", nil, err
	}
	for _, source := range m.provider.ListSources() {
		if source.Version == version {
			name = path.Base(source.Path)
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("schema.Losses: the database has version %d, which this program does not know: use the program that applied it", version)
	}
	text, err := fs.ReadFile(m.files, name)
	if err != nil {
		return name, nil, fmt.Errorf("schema.Losses: %w", err)
	}
	for _, l := range deletions(string(text)) {
		if l.Unknown == "" {
			if l.Rows, err = m.count(ctx, l); err != nil {
				return name, nil, fmt.Errorf("schema.Losses: %w", err)
			}
		}
		if l.Rows > 0 || l.Unknown != "" {
			losses = append(losses, l.Loss)
		}
	}
	return name, losses, nil
}

// deletion is a Loss that is not counted yet.
type deletion struct {
	Loss
	where string // of a DELETE; empty: all rows
}

// count returns how many rows a deletion meets. A table or column that is not there has none.
func (m *Migrator) count(ctx context.Context, d deletion) (n int64, err error) {
	condition := "true"
	if d.where != "" {
		condition = d.where
	}
	if d.Column != "" {
		var normal *string // what a row has that says nothing
		err = m.db.QueryRowContext(ctx, `SELECT pg_get_expr(f.adbin, f.adrelid) FROM pg_attribute a
			LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
			WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped`, d.Table, d.Column).Scan(&normal)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		condition = d.Column + " IS NOT NULL"
		if normal != nil {
			condition += fmt.Sprintf(" AND %s::text IS DISTINCT FROM (%s)::text", d.Column, *normal)
		}
	} else {
		var exists bool
		if err = m.db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, d.Table).Scan(&exists); err != nil || !exists {
			return 0, err
		}
	}
	// The names and the condition are those of a file that this program was built with.
	err = m.db.QueryRowContext(ctx, "SELECT count(*) FROM "+d.Table+" WHERE "+condition).Scan(&n)
	return n, err
}

var (
	dropsTables  = regexp.MustCompile(`(?is)^DROP TABLE (?:IF EXISTS )?(\w+(?:, ?\w+)*)(?: CASCADE| RESTRICT)?$`)
	altersTable  = regexp.MustCompile(`(?is)^ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+) (.+)$`)
	dropsColumn  = regexp.MustCompile(`(?is)\bDROP (?:COLUMN )?(?:IF EXISTS )?(\w+)`)
	dropsNoRows  = regexp.MustCompile(`(?i)^(?:CONSTRAINT|DEFAULT|NOT|IDENTITY|EXPRESSION)$`) // DROP of these drops no column
	changesType  = regexp.MustCompile(`(?is)\bALTER (?:COLUMN )?\w+ (?:SET DATA )?TYPE\b`)
	deletesRows  = regexp.MustCompile(`(?is)^DELETE FROM (\w+)(?: WHERE (.+))?$`)
	losesNothing = regexp.MustCompile(`(?is)^(?:CREATE|LOCK TABLE|COMMENT ON|SET|` +
		`ALTER (?:INDEX|SEQUENCE|VIEW|FUNCTION)|DROP (?:INDEX|VIEW|TRIGGER|FUNCTION|CONSTRAINT))\b`)
	// A block may raise, look and change the schema's own things, but a word of these needs a note.
	changesData = regexp.MustCompile(`(?is)\b(?:UPDATE|DELETE|TRUNCATE|INSERT|MERGE|EXECUTE|DROP TABLE|DROP COLUMN)\b`)
)

// keeps is the note above a statement that changes or deletes rows, and loses nothing
// that was worth keeping. It has to say why.
const keeps = "-- keeps: "

// deletions returns what the Down section of a migration deletes, by its statements.
// A statement that it does not understand, and that has no note, is an unknown one.
func deletions(file string) (all []deletion) {
	dropped := make(map[string]bool) // a table that goes takes its columns with it
	for _, s := range downStatements(file) {
		if s.keeps || losesNothing.MatchString(s.text) {
			continue
		}
		if strings.Contains(s.text, ";") && !strings.HasPrefix(s.text, "DO ") { // several in one
			all = append(all, deletion{Loss: Loss{Unknown: s.text}})
		} else if found := dropsTables.FindStringSubmatch(s.text); found != nil {
			for table := range strings.SplitSeq(found[1], ",") {
				dropped[strings.TrimSpace(table)] = true
				all = append(all, deletion{Loss: Loss{Table: strings.TrimSpace(table)}})
			}
		} else if found := altersTable.FindStringSubmatch(s.text); found != nil && !changesType.MatchString(found[2]) {
			for _, column := range dropsColumn.FindAllStringSubmatch(found[2], -1) {
				if !dropsNoRows.MatchString(column[1]) {
					all = append(all, deletion{Loss: Loss{Table: found[1], Column: column[1]}})
				}
			}
		} else if found := deletesRows.FindStringSubmatch(s.text); found != nil {
			all = append(all, deletion{Loss: Loss{Table: found[1]}, where: found[2]})
		} else if !strings.HasPrefix(s.text, "DO ") || changesData.MatchString(s.text) {
			all = append(all, deletion{Loss: Loss{Unknown: s.text}})
		}
	}
	kept := all[:0]
	for _, d := range all {
		if d.Column == "" || !dropped[d.Table] {
			kept = append(kept, d)
		}
	}
	return kept
}

// statement is one of a Down section, without comments, with single spaces.
type statement struct {
	text  string
	keeps bool // it has the note
}

// downStatements splits at semicolons, and never between StatementBegin and StatementEnd. A
// semicolon in a text makes pieces that are unknown at worst.
func downStatements(file string) (all []statement) {
	_, down, _ := strings.Cut(file, "-- +goose Down")
	var s statement
	var words []string
	whole := false
	end := func() {
		if s.text = strings.TrimSuffix(strings.Join(words, " "), ";"); s.text != "" {
			all = append(all, s)
		}
		s, words = statement{}, nil
	}
	for line := range strings.Lines(down) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-- +goose StatementBegin"):
			whole = true
		case strings.HasPrefix(line, "-- +goose StatementEnd"):
			whole = false
			end()
		case strings.HasPrefix(line, keeps) && len(line) > len(keeps):
			s.keeps = true
		default:
			code, _, _ := strings.Cut(line, "--")
			for !whole && strings.Contains(code, ";") {
				var before string
				before, code, _ = strings.Cut(code, ";")
				words = append(words, strings.Fields(before)...)
				end()
			}
			words = append(words, strings.Fields(code)...)
		}
	}
	end()
	return all
}
