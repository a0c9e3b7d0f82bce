package trail_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/trail"
)

func TestMain(m *testing.M) { servers.Main(m) }

func actor() *trail.Actor {
	return &trail.Actor{Operator: "Ada", Client: "ops", KeyPrefix: "0123456789ab", Address: "::1", Via: "api", Operation: "pauseCampaign", Target: "t", Reason: "why"}
}

// write writes n changes.
func write(t *testing.T, db postgres.DB, n int) {
	t.Helper()
	for i := range n {
		servers.NoError(t, trail.Write(trail.With(t.Context(), actor()), db, nil, map[string]int{"n": i}))
	}
}

// seal runs the sweep.
func seal(t *testing.T, db postgres.Pool) sweep.Counts {
	t.Helper()
	run := sweep.Run{Counts: make(sweep.Counts), BatchSize: 500, MaxBatches: 40}
	servers.NoError(t, trail.Seals(db, servers.Logger(t)).Run(context.Background(), run))
	return run.Counts
}

func TestOfTwoObjectsTheMembersThatDifferAreRecorded(t *testing.T) {
	t.Parallel()
	type document = map[string]any
	for name, c := range map[string]struct {
		before, after any
		was, is       string
	}{
		"both":             {document{"a": 1, "b": []int{1}, "c": "gone"}, document{"a": 1, "b": []int{2}, "d": nil}, `{"b":[1],"c":"gone"}`, `{"b":[2],"d":null}`},
		"what is new":      {nil, document{"id": "made", "a": 1}, `null`, `{"a":1,"id":"made"}`},
		"what is no row":   {[]int{1}, "text", `null`, `null`},
		"what jobs forget": {document{"payment_method": "pm_1"}, document{"a": 1, "payment": document{"method": "card", "payment_method": "pm_1", "return_url": "https://shop.example/?t=1"}}, `{}`, `{"a":1,"payment":{"method":"card"}}`},
		"what is too long": {nil, document{"a": strings.Repeat("x", 16<<10)}, `null`, `{"a":"16386 bytes, SHA-256 f04077c41b0f2c5af1a855e7fddbd3c3fc20e67f44bc355752235cc687243aac"}`},
		"a number's form":  {document{"n": 1 << 60}, document{"n": 1<<60 + 1}, `{"n":1152921504606846976}`, `{"n":1152921504606846977}`},
	} {
		e := trail.Actor{}.Entry(uuid.Nil, c.before, c.after)
		if e.Before != c.was || e.After != c.is || e.JobID != nil || (e.Target == "made") != strings.Contains(c.is, "made") {
			t.Errorf("%s: %s and %s of %q", name, e.Before, e.After, e.Target)
		}
	}
}

// What may be about a person is in a table of its own, from which it can be deleted: the row has its hash, and so has the seal.
func TestTextsAboutPersonsAreNotInTheRow(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	type document = map[string]any
	after := document{"user_id": "mina", "metadata": document{"return_url": "a customer's <&>"}, "parts": []document{{"reference": "a till's", "n": 1}}, "n": 2}
	servers.NoError(t, trail.Write(trail.With(t.Context(), actor()), db, nil, after))
	list := func() trail.Entry {
		t.Helper()
		list, _, err := trail.List(t.Context(), db, trail.Filter{}, postgres.ListPage{Limit: 1})
		servers.NoError(t, err)
		return list[0]
	}
	if e := list(); e.Reason != "why" || e.After != `{"metadata":{"return_url":"a customer's \u003c\u0026\u003e"},"n":2,"parts":[{"n":1,"reference":"a till's"}],"user_id":"mina"}` {
		t.Errorf("the list has %s and %s", e.Reason, e.After)
	}
	seal(t, db)
	row := servers.Value[string](t, db, `SELECT t::text FROM audit_trail t`)
	for _, text := range []string{"mina", "customer", "till", "why"} {
		if strings.Contains(row, text) {
			t.Errorf("%s is in %s", text, row)
		}
	}
	servers.Exec(t, db, `DELETE FROM audit_texts`)
	if e := list(); !strings.HasPrefix(e.Reason, "sha256:") || !strings.Contains(e.After, `"user_id":"sha256:`) || !strings.Contains(e.After, `"n":2`) {
		t.Errorf("without texts the list has %s and %s", e.Reason, e.After)
	}
	fixture.Sound(t, db)
}

func TestTheTrailIsAppendOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	write(t, db, 2)
	seal(t, db)
	write(t, db, 1)
	for _, sql := range []string{"DELETE FROM audit_trail", "DELETE FROM audit_seals", "TRUNCATE audit_trail", "TRUNCATE audit_seals CASCADE", "UPDATE audit_seals SET rows = rows",
		"UPDATE audit_trail SET reason = 'another' WHERE seal IS NULL", "UPDATE audit_trail SET after = after, seal = 1 WHERE seal IS NULL",
		"UPDATE audit_trail SET seal = NULL", "UPDATE audit_trail SET seal = 1 WHERE seal IS NOT NULL"} {
		_, err := db.Exec(t.Context(), sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ConstraintName != "append_only" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// Ten schedulers seal at once, while operators go on.
func TestEachRowIsSealedOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	if got := seal(t, db); got["seals"] != 0 {
		t.Errorf("nothing is new: %v", got)
	}
	servers.NoError(t, trail.Write(t.Context(), db, nil, map[string]int{"n": 1})) // by no operator: it is in no row
	servers.NoError(t, trail.Write(trail.With(t.Context(), actor()), db, map[string]string{"x": "\x00<&"}, nil))
	write(t, db, 19)
	var at sync.WaitGroup
	for range 10 {
		at.Go(func() {
			seal(t, db)
			write(t, db, 2)
		})
	}
	at.Wait()
	seal(t, db)
	if got := seal(t, db); got["seals"] != 0 || got["rows"] != 0 {
		t.Errorf("nothing is new: %v", got)
	}
	var rows, unsealed, seals, last int
	servers.NoError(t, db.QueryRow(t.Context(), `SELECT sum(rows), (SELECT count(*) FROM audit_trail WHERE seal IS NULL), count(*), max(seal) FROM audit_seals`).Scan(&rows, &unsealed, &seals, &last))
	if rows != 40 || unsealed != 0 || seals != last || seals < 2 {
		t.Errorf("%d seals up to %d cover %d rows; %d have none", seals, last, rows, unsealed)
	}
	for _, setting := range []string{"TimeZone = 'Asia/Tokyo'", "DateStyle = 'German'", "bytea_output = 'escape'"} { // the form that is hashed has none of these
		tx, err := db.Begin(t.Context())
		servers.NoError(t, err)
		servers.Exec(t, tx, "SET LOCAL "+setting)
		found, err := audit.CheckIn(t.Context(), tx, trail.Invariants, 10)
		if servers.NoError(t, errors.Join(err, tx.Rollback(t.Context()))); len(found) > 0 {
			t.Errorf("with %s: %v", setting, found)
		}
	}
}
