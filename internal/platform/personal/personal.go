// Package personal says what tables have of persons.
//
// A person is a user id at a client. Each topic has a [Table] for each of its tables; package person copies and
// erases by them, and docs/personal-data.md lists them.
package personal

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

const pseudonym = "erased-"

// NewPseudonym returns what an erasure puts in the place of a user id.
func NewPseudonym() string { return pseudonym + uuid.NewString() }

// IsPseudonym reports whether a user id is a pseudonym.
func IsPseudonym(userID string) bool {
	random, ok := strings.CutPrefix(userID, pseudonym)
	return ok && uuid.Validate(random) == nil && len(random) == 36
}

// Table is what a table has of a person. Its SQL is about a row t; $1 is the client (null: every client), $2 the user id, and $3 the
// pseudonym that an erasure puts in its place (otherwise null). A row that is found by another one is found by the pseudonym of that, too.
type Table struct {
	Name string
	Of   string            // a condition: the row is about the person
	Open string            // a condition: the row is about the person and is not over, so nothing can be erased; an index finds it. Empty: none is open
	Wipe map[string]string // the personal columns, and what each becomes; what is wiped stays as it is
	Gone []string          // the personal columns of a row that is deleted
	When string            // a condition: until the row meets it, it is left, and the erasure waits. Empty: each row does
	Else []string          // personal columns that change with another table, or stay for a time
	Also string            // what else an erasure sets; empty: nothing
	With []string          // statements about rows of other tables that change in the transaction of rows: $1 are the ids of these, as texts, $2 the pseudonym, $3 the user id
	Own  string            // a condition: a copy has the row. Empty: each
	Omit []string          // columns that no copy has
	Why  string            // it is stored
	Till string            // when the row goes without an erasure: a setting, a time, or never
}

// Columns are the personal columns that change with the table.
func (t Table) Columns() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(t.Wipe)), t.Gone...)))
}

// Given declares the parameters, whichever are used.
const Given = `WITH given AS (SELECT $1::text AS client, $2::text AS user_id, $3::text AS pseudonym) `

// Rows selects documents of the rows, also of those that are not over, without the columns that no copy has and the nonces in messages.
func (t Table) Rows() string {
	about := `(` + t.Of + `)`
	if t.Open != "" {
		about = `(` + about + ` OR (` + t.Open + `))`
	}
	if t.Own != "" {
		about += ` AND ` + t.Own
	}
	return Given + `SELECT to_jsonb(t) - '{` + strings.Join(t.Omit, ",") + `}'::text[] #- '{payload,data,nonce}' FROM ` + t.Name + ` t WHERE ` + about
}

// IsOpen selects documents of rows that are not over, $4 at most.
func (t Table) IsOpen() string {
	return Given + `SELECT to_jsonb(t) FROM ` + t.Name + ` t WHERE ` + t.Open + ` LIMIT $4`
}

// Left selects rows that are not erased, which may read the whole table: their versions, as Erase takes them, and, with others, their ids, as texts.
func (t Table) Left() string {
	id := `''`
	if len(t.With) > 0 {
		id = `t.id::text`
	}
	left := `(` + t.Of + `)`
	if len(t.Gone) == 0 {
		var is, becomes []string
		for _, column := range t.Columns() {
			is, becomes = append(is, `t.`+column+`::text`), append(becomes, `(`+t.Wipe[column]+`)::text`)
		}
		left += ` AND (` + strings.Join(is, `, `) + `) IS DISTINCT FROM (` + strings.Join(becomes, `, `) + `)`
	}
	return Given + `SELECT ` + version + `, ` + id + ` FROM ` + t.Name + ` t WHERE ` + left
}

// version is where a row is and who has made it: it changes with the row.
const version = `t.ctid::text || ' ' || t.xmin::text`

// Erase erases those of the rows with versions $4 that have not changed since.
func (t Table) Erase() string {
	among := ` WHERE t.ctid = ANY(ARRAY(SELECT split_part(v, ' ', 1)::tid FROM unnest($4::text[]) AS v)) AND ` + version + ` = ANY($4)`
	if t.When != "" {
		among += ` AND ` + t.When
	}
	if len(t.Gone) > 0 {
		return Given + `DELETE FROM ` + t.Name + ` t` + among
	}
	var set []string
	if t.Also != "" {
		set = append(set, t.Also)
	}
	for _, column := range t.Columns() {
		set = append(set, column+` = `+t.Wipe[column])
	}
	return Given + `UPDATE ` + t.Name + ` t SET ` + strings.Join(set, `, `) + among
}
