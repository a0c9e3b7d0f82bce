package lifecycle_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/config"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

var voided = lifecycle.CancelOrder{By: "operator:ops", Reason: "the chain has ended", Void: true}

const day = 24 * time.Hour

// minutes returns a chain with rounds of a minute.
func minutes(t *testing.T) *drandsim.Chain {
	t.Helper()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now().Add(-time.Hour), time.Minute)
	servers.NoError(t, err)
	return chain
}

// stuck sells a campaign out that is frozen then, and whose round never comes by itself.
func stuck(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain) (draws job.Ref, round beacon.Round) {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	draws = fixture.SellOut(t, db, fixture.CampaignOn(t, db, draft, &chain.Chain))
	if _, err := drawer(t, db, chain).Run(t.Context(), draws); !errors.As(err, new(*drawing.Snoozed)) {
		t.Fatalf("it does not wait for its round: %v", err)
	}
	f, _, err := drawing.FreezeOf(t.Context(), db, draws.CampaignID)
	servers.NoError(t, err)
	return draws, chain.Sign(*f.Round)
}

func drawer(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain) *drawing.Drawer {
	t.Helper()
	options := drawing.DrawerOptions{}
	if chain != nil {
		options.Beacon = chain
	}
	return drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, options, servers.Logger(t))
}

// arrive moves the clock of the database to a time.
func arrive(t *testing.T, db *pgxpool.Pool, clock *servers.Clock, at time.Time) {
	t.Helper()
	now, err := drawing.Now(t.Context(), db)
	servers.NoError(t, err)
	clock.MoveOn(at.Sub(now))
}

// tooEarly expects that a void is refused until a time, by its job and by the table.
func tooEarly(t *testing.T, db *pgxpool.Pool, id uuid.UUID, until time.Time) {
	t.Helper()
	outcome, err := canceller(t, db).Run(t.Context(), order(t, db, id, voided))
	if err != nil || outcome.Problem == nil || outcome.Problem.Code != fault.StateConflict || !outcome.Problem.RetryAt.Equal(until) {
		t.Errorf("got %+v, %v; it can be voided from %s on", outcome, err, until)
	}
	tableRefuses(t, db, id)
}

// tableRefuses expects that nobody voids a draw with a statement of its own.
func tableRefuses(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	refusedBy(t, db, "draws_are_voided_late", `SELECT $1::uuid`, id, voidWithoutItsJob)
}

func voidWithoutItsJob(b *pgx.Batch, id uuid.UUID) {
	campaign.QueueCancel(b, id, "operator:ops", "", true)
}

// refusedBy expects that a constraint refuses a statement about a campaign, or what follows it.
func refusedBy(t *testing.T, db *pgxpool.Pool, constraint, sql string, id uuid.UUID, then ...func(*pgx.Batch, uuid.UUID)) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var b pgx.Batch
	b.Queue(sql, id)
	for _, queue := range then {
		queue(&b, id)
	}
	err = tx.SendBatch(t.Context(), &b).Close()
	if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != constraint {
		t.Errorf("%s: the table says %v", sql, err)
	}
}

// isVoid expects that a campaign is cancelled with its money given back, and that nobody can draw it
// any more: no worker with a claim, no new one, and no statement.
func isVoid(t *testing.T, db *pgxpool.Pool, draws job.Ref, claimed campaign.Execution, drawer *drawing.Drawer) {
	t.Helper()
	id := draws.CampaignID
	if c := campaignOf(t, db, id); c.State != campaign.Cancelled || c.Counts.Sold != 0 {
		t.Errorf("the campaign is %s, %d positions are sold", c.State, c.Counts.Sold)
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM purchases WHERE campaign_id = $1 AND state <> $2`, id, string(purchase.Cancelled)); n != 0 {
		t.Errorf("%d purchases are not given back", n)
	}
	if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return claimed.Complete(t.Context(), tx) }); !errors.Is(err, campaign.ErrFenced) {
		t.Errorf("a worker with a claim: %v", err)
	}
	outcome, err := drawer.Run(t.Context(), draws)
	if err != nil || outcome.Problem == nil || outcome.Problem.Code != fault.CampaignNotActive {
		t.Errorf("another attempt: %+v, %v", outcome, err)
	}
	_, err = db.Exec(t.Context(), `
		INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version)
		SELECT $1, CASE WHEN rules::jsonb -> 'beacon' = 'null' THEN 'operator' ELSE 'beacon' END, sha256('r'), sha256('s'), '', '[]', 99 FROM commitments WHERE campaign_id = $1`, id)
	if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != "draws_keep_their_rules" || !strings.Contains(no.Message, "void") {
		t.Errorf("a draw by a statement: %v", err)
	}
	if _, waits, err := fixture.DrawWait(t.Context(), db, id); err != nil || waits {
		t.Errorf("it still waits: %v", err)
	}
	fixture.Sound(t, db)
}

// claim takes the execution lock of a draw, as a worker that stands still now.
func claim(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Execution {
	t.Helper()
	e, ok, err := campaign.Claim(t.Context(), db, id, "a worker", time.Hour)
	if err != nil || !ok {
		t.Fatalf("no claim: %v", err)
	}
	return e
}

// A freeze without a beacon shows nobody the outcome but the operator, which is trusted.
func TestADrawWithoutABeaconIsVoidedAfterADayFrozenOrNot(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		db, clock := servers.DBWithClock(t)
		draws := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
		id := draws.CampaignID
		started := servers.Value[time.Time](t, db, `SELECT draw_started_at FROM campaigns WHERE id = $1`, id)
		if frozen {
			f := drawing.Freeze{CampaignID: id, Record: []byte("{}"), Root: fairdraw.Hash{1}, Count: 6, FrozenAt: time.Now()}
			servers.NoError(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return drawing.InsertFreeze(t.Context(), tx, f, nil, nil) }))
		}
		arrive(t, db, clock, started.Add(day-time.Hour))
		tooEarly(t, db, id, started.Add(day))
		refused(t, db, order(t, db, id, byOps), fault.StateConflict) // a cancellation is none
		claimed := claim(t, db, id)
		arrive(t, db, clock, started.Add(day))
		if frozen { // with a record that nobody verifies
			ends(t, canceller(t, db), order(t, db, id, voided))
			continue
		}
		refusedBy(t, db, "draws_are_voided_late", `
			UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:ops', execution_lock_id = NULL, execution_locked_at = NULL, execution_locked_by = NULL WHERE id = $1`, id)
		refusedBy(t, db, "draws_are_voided_late", `
			WITH drawn AS (INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version) VALUES ($1, 'operator', sha256('r'), sha256('s'), '', '[]', 1))
			SELECT`, id, voidWithoutItsJob)
		ends(t, canceller(t, db), order(t, db, id, voided))
		isVoid(t, db, draws, claimed, drawer(t, db, nil))
		refused(t, db, order(t, db, id, voided), fault.StateConflict)
	}
}

// announce lets the round of a stuck draw be overdue, and its void be announced.
func announce(t *testing.T, db *pgxpool.Pool, clock *servers.Clock, id uuid.UUID, due time.Time) (void job.Ref, voidsAt time.Time) {
	t.Helper()
	arrive(t, db, clock, due.Add(day-time.Minute)) // its draw began more than a day ago
	tooEarly(t, db, id, due.Add(day))
	refusedBy(t, db, "draw_voids_are_late", `INSERT INTO draw_voids VALUES ($1, clock_timestamp(), clock_timestamp() + interval '168 hours')`, id)
	refusedBy(t, db, "draw_voids_are_late", `INSERT INTO draw_voids VALUES ($1, clock_timestamp() + interval '1 day', clock_timestamp() + interval '9 days')`, id) // dated ahead
	arrive(t, db, clock, due.Add(day))
	refusedBy(t, db, "draw_voids_check", `INSERT INTO draw_voids VALUES ($1, clock_timestamp(), clock_timestamp() + interval '167 hours')`, id)
	void = order(t, db, id, voided)
	waitsForVoid(t, db, void)
	at := announcedFor(t, db, id)
	if at.Before(due.Add(8*day)) || at.After(due.Add(8*day+time.Hour)) {
		t.Fatalf("announced for %s; due at %s", at, due)
	}
	return void, at
}

// waitsForVoid expects that a job waits for the time that is announced.
func waitsForVoid(t *testing.T, db *pgxpool.Pool, void job.Ref) {
	t.Helper()
	wait, at := waits(t, canceller(t, db), void), announcedFor(t, db, void.CampaignID)
	if wait.After <= 0 || wait.After > 5*time.Minute {
		t.Fatalf("announced for %s: %+v", at, wait)
	}
	j := fixture.Job(t, db, void.ID)
	if j.State != job.Queued || j.Progress == nil || j.Progress.Waiting == nil || !j.Progress.Waiting.RetryAt.Equal(at) {
		t.Errorf("the job is %s, %+v", j.State, j.Progress)
	}
	tableRefuses(t, db, void.CampaignID)
}

func TestADrawWithABeaconIsVoidedSevenDaysAfterItIsAnnounced(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := minutes(t)
	draws, right := stuck(t, db, chain)
	id, due := draws.CampaignID, chain.DueAt(right.Number)
	servers.Exec(t, db, `INSERT INTO webhook_endpoints (id, client, url, events) VALUES (gen_random_uuid(), 'shop', 'https://shop.example', '{campaign.void_announced}')`)
	void, voidsAt := announce(t, db, clock, id, due)
	if n := servers.Value[int](t, db, `SELECT count(*) FROM webhook_events WHERE type = 'campaign.void_announced' AND subject = $1`, id); n != 1 {
		t.Errorf("%d events tell of it", n)
	}
	servers.Exec(t, db, `DELETE FROM webhook_endpoints`)
	claimed := claim(t, db, id)
	arrive(t, db, clock, voidsAt.Add(-time.Minute))
	waitsForVoid(t, db, order(t, db, id, voided)) // another request announces nothing anew
	waitsForVoid(t, db, void)
	arrive(t, db, clock, voidsAt)
	ends(t, canceller(t, db), void)
	submit(t, db, id, "the round after the void", right.Signature, fault.StateConflict)
	if err := drawing.InsertRound(t.Context(), db, chain.Hash(), right); err != nil { // for another campaign
		t.Fatal(err)
	}
	submit(t, db, id, "a round that is known, after the void", right.Signature, fault.StateConflict)
	isVoid(t, db, draws, claimed, drawer(t, db, chain))
	list, err := drawing.NewProofs(db).List(t.Context(), id) // the positions themselves are free by now
	if err == nil {
		err = list.Write(t.Context(), io.Discard)
	}
	if err != nil {
		t.Errorf("the list of a draw that is void: %v", err)
	}
	if shown, err := drawing.ProofStateOf(t.Context(), db, id); err != nil || shown.Freeze == nil || shown.Progress.VoidsAt == nil || shown.Chain == nil {
		t.Errorf("it shows %+v, %v", shown, err)
	}
}

// Anybody may bring the round, up to the last moment: then the draw follows, and nothing voids it.
func TestARoundThatAnybodyBringsDrawsAndNothingVoidsItAnyMore(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := minutes(t)
	draws, right := stuck(t, db, chain)
	id, due := draws.CampaignID, chain.DueAt(right.Number)
	void, voidsAt := announce(t, db, clock, id, due)
	for name, signature := range map[string][]byte{"of the next round": chain.Sign(right.Number + 1).Signature, "no point": make([]byte, 48), "too short": {1}} {
		submit(t, db, id, name, signature, fault.InvalidRequest)
	}
	arrive(t, db, clock, voidsAt)
	for range 2 {
		if got := submit(t, db, id, "the right one", right.Signature, ""); got.Randomness != right.Randomness {
			t.Fatalf("%+v", got)
		}
	}
	submit(t, db, id, "a wrong one after it", make([]byte, 48), fault.InvalidRequest)
	refused(t, db, void, fault.StateConflict)
	tableRefuses(t, db, id)
	refusedBy(t, db, "draw_voids_are_late", `INSERT INTO draw_voids VALUES ($1, clock_timestamp(), clock_timestamp() + interval '168 hours')`, id)
	if outcome, err := drawer(t, db, nil).Run(t.Context(), draws); err != nil || outcome.Problem != nil { // its worker asks no relay
		t.Fatalf("%+v, %v", outcome.Problem, err)
	}
	refused(t, db, order(t, db, id, voided), fault.StateConflict)
	submit(t, db, id, "after the draw", right.Signature, "")
	fixture.Sound(t, db)
}

// submit brings a round, and expects that it is taken or refused with a code.
func submit(t *testing.T, db *pgxpool.Pool, id uuid.UUID, what string, signature []byte, code fault.Code) beacon.Round {
	t.Helper()
	got, err := drawing.SubmitRound(t.Context(), db, id, signature)
	if fault.CodeOf(err) != code {
		t.Errorf("%s: %v", what, err)
	}
	return got
}

func TestNoRoundIsTakenThatIsNotAwaited(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	plain, onSale := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3))), fixture.Campaign(t, db, fixture.Draft(3))
	some := minutes(t).Sign(1).Signature
	submit(t, db, plain.CampaignID, "not frozen", some, fault.StateConflict)
	submit(t, db, onSale, "on sale", some, fault.StateConflict)
	if _, err := drawer(t, db, nil).Run(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	submit(t, db, plain.CampaignID, "without a beacon", some, fault.StateConflict)
	submit(t, db, uuid.New(), "of no campaign", some, fault.NotFound)
	refused(t, db, order(t, db, onSale, voided), fault.StateConflict)
}

func announcedFor(t *testing.T, db *pgxpool.Pool, id uuid.UUID) time.Time {
	t.Helper()
	return servers.Value[time.Time](t, db, `SELECT voids_at FROM draw_voids WHERE campaign_id = $1`, id)
}
