package upkeep_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/person"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestNobodyIsErasedAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	stored := upkeep.Personal()
	nobody := person.Person{Client: "shop", UserID: "nobody"}
	servers.NoError(t, stored.Open(t.Context(), db, nobody))
	servers.NoError(t, stored.Copy(t.Context(), db, nobody, io.Discard))
	id := uuid.New()
	servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, user_id, payload, expires_at) VALUES ($1, 'shop', 'k', sha256(''), 'erasure', 'nobody', '{"client":"shop","user_id":"nobody","by":"app:shop","reason":"asked"}', now())`, id)
	outcome, err := person.NewEraser(db, db, stored, keyring.NewHasher("a key", "")).Run(context.Background(), job.Ref{ID: id})
	servers.NoError(t, err)
	if string(outcome.Result) != `{"erased":{}}` {
		t.Errorf("the result is %s", outcome.Result)
	}
}

// What others approved is about the owner that they saw, or whom the money went to, also when the body of the request is gone.
func TestWhoseRequestsForApprovalAreCopied(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	mina, otto := fixture.Wallet(t, db, "mina", 0), fixture.Wallet(t, db, "otto", 0)
	requested := func(path, target, name, value string) {
		servers.Exec(t, db, `
			INSERT INTO approvals (id, requester, operation, target, path, requested_by, deciding, preview, state, decided_by, decided_at)
			VALUES (gen_random_uuid(), 'ops', 'wallet.credit', $2, $1, '{"operator":"Olga"}', '{}', json_build_array(json_build_object('name', $3::text, 'value', $4::text)), 'rejected', '{"operator":"Olga"}', now())`, path, target, name, value)
	}
	requested("/v1/wallets", "mina", "Owner", "mina of test")
	requested("/v1/wallets", "mina", "Owner", "mina of kiosk")
	requested("/v1/transfers", otto.String(), "To", mina.String()+", of mina of test")
	requested("/v1/wallets/"+mina.String()+"/credit", mina.String(), "Owner", "mina of test")
	for client, want := range map[string]int{"test": 3, "kiosk": 1, "": 4} {
		var copied bytes.Buffer
		servers.NoError(t, upkeep.Personal().Copy(t.Context(), db, person.Person{Client: client, UserID: "mina"}, &copied))
		if n := strings.Count(copied.String(), `"state": "rejected"`); n != want || strings.Contains(copied.String(), "Olga") {
			t.Errorf("the copy for %q has %d requests, want %d: %s", client, n, want, copied.String())
		}
	}
}

// asDrawn lets campaigns be drawn, and returns what makes them be sold again.
func asDrawn(t *testing.T, db postgres.Beginner) (again func()) {
	t.Helper()
	change := func(set string) {
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`) // no way leads there
			servers.Exec(t, tx, `UPDATE campaigns SET `+set+` WHERE name <> 'open'`)
			return nil
		}))
	}
	change(`state = 'completed', draw_completed_at = now()`)
	return func() { change(`state = 'active', draw_completed_at = NULL`) }
}

// Each run looks at the next two users. Those of whom nothing is new and nothing open get a job each, once, and no run asks
// while one of another is queued.
func TestUsersExpire(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(5))
	for _, user := range []string{"old", "new", "newly paid", "rich", "erased-" + uuid.NewString()} {
		fixture.Buy(t, db, campaign, user, 0, 1)
	}
	later := fixture.PurchaseRequest(t, campaign, "new", 0, 1)
	later.ID = uuidv7.FirstAt(time.Now().Add(time.Hour))
	fixture.Complete(t, db, later)
	fixture.Wallet(t, db, "rich", 1)
	fixture.Wallet(t, db, "old", 0)
	fixture.Wallet(t, db, "poor", 0)
	servers.Exec(t, db, `UPDATE wallets SET created_at = clock_timestamp() + interval '1 hour' WHERE id = $1`, fixture.Wallet(t, db, "newly paid", 0))
	open := fixture.Draft(3)
	open.Name = "open"
	fixture.Buy(t, db, fixture.Campaign(t, db, open), "open", 0, 1)
	again := asDrawn(t, db)
	prune := upkeep.Personal().Expired(db, time.Nanosecond, time.Hour)[0]
	for run := range 12 {
		_, more, err := prune.Begin()(t.Context(), 2)
		servers.NoError(t, err)
		if more {
			t.Error("the next users are looked at at once")
		}
		if n := servers.Value[int](t, db, `SELECT count(*) FROM jobs WHERE kind = 'erasure' AND state = 'queued'`); n > 1 {
			t.Errorf("%d erasures are queued", n)
		}
		if run == 4 {
			servers.Exec(t, db, `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE kind = 'erasure'`)
		}
	}
	again()
	if got := servers.Value[string](t, db, `SELECT string_agg(user_id || '@' || (payload ->> 'client'), ', ' ORDER BY user_id) FROM jobs WHERE kind = 'erasure'`); got != "old@test, poor@test" {
		t.Errorf("erased are %s", got)
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM audit_trail WHERE operation = 'eraseUser' AND via = 'system'`); n != 2 {
		t.Errorf("the trail has %d rows", n)
	}
	if upkeep.Personal().Expired(db, 0, time.Hour) != nil {
		t.Error("without a retention somebody expires")
	}
	fixture.Sound(t, db)
}

// notPersonal are the columns of the schema without data of a person, by table. A new column is said to be in these, or in a personal.Table.
const notPersonal = `
	api_clients: name role
	api_keys: prefix secret_hash role client created_at last_used_at revoked_at
	approval_movements: requester operation currency amount at
	approvals: id requester operation path state requested_at expires_at decided_at
	audit_checks: invariant checked_at
	audit_seals: seal id previous hash rows sealed_at
	audit_texts: hash entry_id
	audit_trail: id at operator client key_prefix address via operation target job_id reason issuer subject email approval_id approved_by before after seal
	audit_violations: walk id invariant subjects found_at seen_at
	audit_walks: walk after resume_at
	authorizations: id wallet_id amount captured state created_at expires_at ended_at
	balance_transactions: id day type reporting_category known amount currency fee net exchange_rate created_at available_on source_id intent_id purchase_id source_amount source_currency source_status
	beacon_chains: chain_hash public_key genesis_time genesis_seed beacon_id period_s
	beacon_rounds: chain_hash round signature randomness stored_at
	book_facts: day kind document_id id at debit credit amount currency purchase_id campaign_id method adjusts
	book_periods: name starts_at ends_at zone earned_at numbers opening open closed_by began_at fence done_until progress closed_at entries hash statement
	campaign_metadata: campaign_id metadata
	campaigns: id name base_length currency purchase_limit state paused_at sale_starts_at sale_ends_at draws_at policies positions_total positions_reserved positions_sold positions_blocked board_version closed_board execution_lock_id execution_locked_by execution_locked_at execution_version created_at published_at draw_started_at draw_completed_at cancelled_at cancelled_by cancel_reason
	commitments: campaign_id rules commitment
	console_persons: issuer subject roles checked_at
	console_sessions: token_hash key_prefix operator issuer subject email roles checked_at created_at seen_at
	disputes: id purchase_id status reason refundable lost opened_at closed_at changed_at amount currency fee fee_currency closed
	draw_key_check: one sealed
	draw_secrets: campaign_id sealed sealed_at
	draw_voids: campaign_id announced_at voids_at
	draw_waits: campaign_id reason retry_at faults
	draws: campaign_id trust root secret randomness winners execution_version executed_at
	erasures: id client pseudonym fence begun_at at found rows hash finished_at
	freeze_subtrees: campaign_id number hash leaves
	freezes: campaign_id root sold record round frozen_at
	goose_db_version: id version_id is_applied tstamp
	held_times: campaign_id layer col held_seconds ended_at pause_seconds
	holds: id campaign_id client positions currency size state extensions expires_at ends_by purchase_id created_at ended_at
	installation: one id created_at
	jobs: id client kind campaign_id state purchase_id http_status attempts request_id traceparent accepted_at finished_at expires_at
	layers: campaign_id layer price positions first_number label aisles
	ledger_entries: id kind debit_wallet debit_account credit_wallet credit_account amount currency scope authorization_id purchase_id created_at
	outbox_messages: id kind jobs delivery seen_at waits_for
	payment_discrepancies: id kind object_id transaction_id purchase_id here_amount here_currency there_amount there_currency detail found_at closed_at explained_by explained_at version
	payment_events: id type api_version created_at received_at source object_id intent_id purchase_id status handled_at outcome
	payment_events_listed: one until moved_at
	payment_steps: purchase_id at number event
	payments: purchase_id campaign_id amount currency phase version lease_until due_at wakes deadline latest awaits_until declined_until over_at kept_since attempt attempt_at tries intent_id intent_status livemode received ending uncancellable cancel_job faults waiting_for waiting_since resolved_as paid disputed_at dispute amount_disputed created_at finished_at
	position_fills: campaign_id draft made
	positions: campaign_id layer col rank price state version board_version hold_id purchase_id expires_at sold_at block_reason
	prizes: campaign_id number layer name winning_column
	public_pages: campaign_id embed_origins
	purchase_items: purchase_id layer col price
	purchases: id campaign_id client amount currency payment_method state failure created_at completed_at cancelled_at
	reconciled_days: day version lease_until listed_until done_at
	refunds: id purchase_id number campaign_id client method amount currency reason state version lease_until due_at wakes attempt attempt_at asked provider_id faults waiting_since stuck created_at finished_at failed_at resolved_at
	refused_jobs: id refused_at jobs
	timelines: system timeline branch met_at
	wallet_events: wallet_id version entry_id delta_balance delta_held at
	wallet_metadata: wallet_id
	wallet_snapshots: wallet_id version balance held
	wallets: id client currency balance held version created_at
	webhook_attempts: event_id endpoint_id number at duration_ms status failure
	webhook_deliveries: event_id endpoint_id state attempts next_at created_at finished_at
	webhook_endpoints: id client url events description created_at made_by verified_at challenged_at challenge_error disabled_at disabled_reason failing_since failures paused_until slow version due_at wakes lease_until deleted_at
	webhook_events: id client type subject version campaign_id at
	webhook_secrets: id endpoint_id sealed sealed_at created_at expires_at
`

func TestEveryColumnIsSaidToBePersonalOrNot(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	said := make(map[string]bool)
	for line := range strings.Lines(notPersonal) {
		table, columns, _ := strings.Cut(strings.TrimSpace(line), ":")
		for column := range strings.FieldsSeq(columns) {
			said[table+"."+column] = true
		}
	}
	var page strings.Builder
	for _, p := range upkeep.Personal().Tables {
		columns := append(p.Columns(), p.Else...)
		for _, column := range columns {
			if said[p.Name+"."+column] {
				t.Errorf("%s.%s is said to be personal, and not to be", p.Name, column)
			}
			said[p.Name+"."+column] = true
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", p.Name, strings.Join(columns, ", "), p.Why, p.Till)
	}
	all, err := postgres.Collect(t.Context(), db, pgx.RowTo[string], `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'`)
	servers.NoError(t, err)
	for _, column := range all {
		if !said[column] {
			t.Errorf("%s is new: is it personal?", column)
		}
		delete(said, column)
	}
	for column := range said {
		t.Errorf("%s is not in the schema", column)
	}
	text, err := os.ReadFile("../../../docs/personal-data.md")
	servers.NoError(t, err)
	if !strings.Contains(string(text), page.String()) {
		t.Errorf("docs/personal-data.md must have\n%s", page.String())
	}
}
