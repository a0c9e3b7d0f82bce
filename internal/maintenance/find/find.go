// Package find says what an id or a word is, whatever it is the id of. It never writes.
//
// Each look-up is a query that goes along an index, for one kind of thing. Few ids belong to two
// kinds, so each look-up is made that the text can be meant for.
package find

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Hit is one thing that a text names, or that belongs to what it names.
type Hit struct {
	What  string          `json:"what"`  // job, purchase, …
	ID    string          `json:"id"`    // its own
	State string          `json:"state"` // empty: it has none
	Facts json.RawMessage `json:"facts"` // an object: ids of what it belongs to, and what matters most
	See   string          `json:"see"`   // the request or the command that shows all of it
}

// lookup finds one kind of thing.
type lookup struct {
	what string
	sql  string // of $1, the text: returns id, state, facts
	see  string // {} stands for the id
	id   bool   // only for a text that is a UUID: then $1 is one
}

// most is how many things of one kind are found, the newest first.
const most = 10

// Newest is how many jobs are searched for what no index has: the newest ones.
const Newest = 50_000

// Look returns what the text names, in the order of [Places]; of each look-up ten at most, the newest.
func Look(ctx context.Context, db postgres.DB, text string) ([]Hit, error) {
	text = strings.TrimSpace(text)
	if !utf8.ValidString(text) {
		return nil, nil // the database has no such text
	}
	if key := ofKey.FindStringSubmatch(text); key != nil {
		text = key[1]
	}
	id, notID := uuid.Parse(text)
	var found []Hit
	for _, l := range lookups {
		var arg any = text
		if l.id {
			if notID != nil {
				continue
			}
			arg = id
		}
		hits, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (Hit, error) {
			h := Hit{What: l.what}
			err := row.Scan(&h.ID, &h.State, &h.Facts)
			h.See = strings.ReplaceAll(l.see, "{}", h.ID)
			return h, err
		}, l.sql, arg, most)
		if err != nil {
			return nil, fault.At(err, "find.Look(%s)", l.what)
		}
		for _, h := range hits {
			if !slices.ContainsFunc(found, func(other Hit) bool {
				return other.What == h.What && other.ID == h.ID && string(other.Facts) == string(h.Facts)
			}) {
				found = append(found, h)
			}
		}
	}
	return found, nil
}

// ofKey is an API key, or what its owner may show of it: the database never gets the secret.
var ofKey = regexp.MustCompile(`^tp_([0-9a-f]+)(?:_[0-9a-f]*)?$`)

// Places lists the kinds of things that Look finds.
func Places() (all []string) {
	seen := make(map[string]bool)
	for _, l := range lookups {
		if !seen[l.what] {
			seen[l.what] = true
			all = append(all, l.what)
		}
	}
	return all
}
