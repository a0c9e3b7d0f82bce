package campaign_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// allowed is the diagram of the package comment.
var allowed = map[campaign.State][]campaign.State{
	campaign.Pending: {campaign.Active, campaign.Cancelled},
	campaign.Active:  {campaign.Drawing, campaign.Cancelled},
	campaign.Drawing: {campaign.Completed, campaign.Cancelled}, // a draw that is stuck is voided
}

func TestTheDatabaseAllowsTheMovesOfTheDiagramAndNoOther(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, from := range campaign.States {
		for _, to := range campaign.States {
			id := put(t, db, from)
			servers.Exec(t, db, `UPDATE campaigns SET draw_started_at = now() - interval '24 hours' WHERE id = $1 AND state = 'drawing'`, id)
			_, err := db.Exec(t.Context(), `
				UPDATE campaigns SET state = $2, execution_version = execution_version + 1, published_at = coalesce(published_at, now()),
				                     draw_completed_at = CASE WHEN $2 = 'completed' THEN now() END,
				                     cancelled_at = CASE WHEN $2 = 'cancelled' THEN now() END, cancelled_by = CASE WHEN $2 = 'cancelled' THEN 'operator:ops' END
				WHERE id = $1`, id, string(to))
			now := get(t, db, id).State
			if from == to || slices.Contains(allowed[from], to) {
				if err != nil || now != to {
					t.Errorf("%s to %s: %v, it is %s", from, to, err, now)
				}
				continue
			}
			refused, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || refused.ConstraintName != "campaign_state_moves" || now != from {
				t.Errorf("%s to %s: %v, it is %s", from, to, err, now)
			}
		}
	}
}

// move is a change to a campaign and the states it may be done in.
type move struct {
	do   func(t *testing.T, tx pgx.Tx, id uuid.UUID) error
	in   []campaign.State
	code fault.Code // of the refusal
}

var errNothingDone = errors.New("nothing was done")

var moves = map[string]move{
	"replace": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Replace(t.Context(), tx, id, fixture.Draft(5))
	}, []campaign.State{campaign.Pending}, fault.StateConflict},
	"activate": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Activate(t.Context(), tx, id, commitment())
	}, []campaign.State{campaign.Pending}, fault.StateConflict},
	"amend": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Amend(t.Context(), tx, id, campaign.Patch{Name: pointer("Another name")})
	}, []campaign.State{campaign.Active}, fault.StateConflict},
	"pause": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Pause(t.Context(), tx, id)
	}, []campaign.State{campaign.Active}, fault.StateConflict},
	"resume": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Resume(t.Context(), tx, id)
	}, []campaign.State{campaign.Active}, fault.StateConflict},
	"count": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return count(t, tx, campaign.Changes{id: {Sold: -1, Reserved: 1}})
	}, []campaign.State{campaign.Active}, fault.InternalError},
	"count back": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		var b pgx.Batch
		campaign.Changes{id: {Sold: -1}}.QueueBack(&b)
		return tx.SendBatch(t.Context(), &b).Close()
	}, []campaign.State{campaign.Active, campaign.Cancelled}, fault.InternalError},
	"cancel": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		var b pgx.Batch
		campaign.QueueCancel(&b, id, "operator:ops", "", false)
		return tx.SendBatch(t.Context(), &b).Close()
	}, []campaign.State{campaign.Pending, campaign.Active}, fault.InternalError},
	"start the draw": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.StartDraw(t.Context(), tx, id)
	}, []campaign.State{campaign.Active}, fault.InternalError},
	"claim": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		if _, ok, err := campaign.Claim(t.Context(), tx, id, "a worker", lease); err != nil || !ok {
			return errors.Join(err, errNothingDone)
		}
		return nil
	}, []campaign.State{campaign.Drawing}, fault.InternalError},
	"rename": {func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return campaign.Rename(t.Context(), tx, id, "Another name")
	}, campaign.States, fault.StateConflict},
}

func TestEveryMoveIsDoneInItsStatesAndChangesNothingInTheOthers(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, move := range moves {
		for _, state := range campaign.States {
			id := put(t, db, state)
			exec(t, db, `UPDATE campaigns SET positions_sold = 10 WHERE id = $1`, id)
			if name == "resume" && state == campaign.Active {
				exec(t, db, `UPDATE campaigns SET paused_at = now() WHERE id = $1`, id)
			}
			before := everything(t, db, id)
			err := attempt(t, db, func(tx pgx.Tx) error { return move.do(t, tx, id) })
			changed := everything(t, db, id) != before
			if slices.Contains(move.in, state) {
				if err != nil || !changed {
					t.Errorf("%s while %s: %v, changed: %v", name, state, err, changed)
				}
			} else if fault.CodeOf(err) != move.code || changed {
				t.Errorf("%s while %s: %v, changed: %v", name, state, err, changed)
			}
		}
		missing := uuid.New()
		if err := attempt(t, db, func(tx pgx.Tx) error { return move.do(t, tx, missing) }); fault.CodeOf(err) != move.code {
			t.Errorf("%s of a campaign that does not exist: %v", name, err)
		}
	}
}

// The second of two waits for the first, and decides on what the first has left.
func TestOfTwoMovesAtOnceTheSecondSeesTheFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	raise := func(limit int) func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
		return func(t *testing.T, tx pgx.Tx, id uuid.UUID) error {
			return campaign.Amend(t.Context(), tx, id, campaign.Patch{PurchaseLimit: to(&limit)})
		}
	}
	for name, c := range map[string]struct {
		state         campaign.State
		first, second func(t *testing.T, tx pgx.Tx, id uuid.UUID) error
	}{
		"publish, publish":          {campaign.Pending, moves["activate"].do, moves["activate"].do},
		"publish, replace":          {campaign.Pending, moves["activate"].do, moves["replace"].do},
		"start the draw, pause":     {campaign.Active, moves["start the draw"].do, moves["pause"].do},
		"start the draw, amend":     {campaign.Active, moves["start the draw"].do, moves["amend"].do},
		"start the draw, twice":     {campaign.Active, moves["start the draw"].do, moves["start the draw"].do},
		"start the draw, count":     {campaign.Active, moves["start the draw"].do, moves["count"].do},
		"claim, claim":              {campaign.Drawing, moves["claim"].do, moves["claim"].do},
		"limit 9, limit 8 (from 5)": {campaign.Active, raise(9), raise(8)},
	} {
		for _, commit := range []bool{true, false} {
			id := put(t, db, c.state)
			exec(t, db, `UPDATE campaigns SET positions_sold = 10, purchase_limit = 5 WHERE id = $1`, id)
			first := begin(t, db)
			if err := c.first(t, first, id); err != nil {
				t.Fatal(name, err)
			}
			err := behind(t, db, first, commit, func() error {
				return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return c.second(t, tx, id) })
			})
			if _, broken := errors.AsType[*pgconn.PgError](err); broken {
				t.Errorf("%s: the second was stopped by the database only: %v", name, err)
			}
			if done := err == nil; done == commit {
				t.Errorf("%s, the first committed: %v; the second: %v", name, commit, err)
			}
		}
	}
}
