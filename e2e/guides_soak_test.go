//go:build soak

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestTheWalkThroughWorksAsPasted(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(document(t, walkThrough), "<!-- walk-through")
	if !found {
		t.Fatal("the walk-through is gone")
	}
	_, dev := startDev(t, openDir(t))
	out := paste(t, blocks(text), "API="+dev.APIURL, "OPERATOR="+dev.OperatorKey, "APP="+dev.AppKey)
	inOrder(t, out, `"state":"active"`, `"commitment":"`, `"amount":600`, "Idempotent-Replayed: true", `"code":"purchase-limit-exceeded"`,
		`"kind":"draw","state":"succeeded"`, `"state":"completed"`, `"name":"A bicycle"`, `"state":"sold"`)
}

func TestTheGuideWorksAsPasted(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: append([]string{"TRIPRIZE_TOKENS_CLIENT=shop"}, fleet.Trusting.Env...)})
	text, cards := aboutCards(t)
	if cards == "" {
		t.Error("the chapter about cards is gone")
	}
	out := paste(t, blocks(text), "API="+s.URLs[0], "OPERATOR="+s.Operator, "APP="+s.App,
		"TOKEN="+fleet.TokenFor(t, "alice", ""))
	inOrder(t, out,
		`"state":"active"`,                                // published,
		`"state":"succeeded"`,                             // sold,
		"200 OK", "Idempotent-Replayed: true", `"column"`, // replayed,
		"202 Accepted", "Retry-After: 1", // accepted,
		`"state":"succeeded"`, "event: job", `"state":"succeeded"`, // waited for, listened to,
		`"purchases":[{"id":`, `"user_id":"bob"`, // and found among the user's.
		`"state":"active"`, `"extensions":1`, `"amount":1000`, `"state":"used"`, // held, extended, bought
		`"metadata":{"cart":"c-81"`, // with ids of the app
		`"pointer":"/selection/quantity"`, `"code":"sold-out"`,
		`"kind":"cancellation","state":"succeeded"`, `"state":"cancelled"`, `"reason":"the buyer changed her mind"`,
		`"balance":5500`, `"amount":200`, // a wallet, and what it paid,
		`"captured":300,"state":"active"`, `"state":"voided"`, // held,
		`"code":"version-mismatch"`, `"code":"insufficient-funds"`, `"kind":"void"`, `"kind":"capture"`, // refused, and kept
		`"user_id":"alice"`, `"code":"not-found"`, // a token
		"304 Not Modified", "8\n", // eight are sold
		`"next_cursor"`,
		`"kind":"purchase","state":"failed"`, `"code":"sold-out"`, `"jobs":[],"next_cursor":null`, `"reference":"order-1"`, `"state":"used"`, // found,
		`"campaign":{"id":`, "id,created_at,", ",dora,", ",the buyer changed her mind,", // with what belongs to it, as a table
		`"since":null,"positions":[`, // followed,
		"event: campaign", `"state":"active"`, `"board":{"board_version":`)
}

func TestABackupIsTakenAndRestoredAsThePageSays(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(document(t, operations), "<!-- a test takes these four commands")
	if !found {
		t.Fatal("the commands are gone")
	}
	text, _, _ = strings.Cut(text, "\nTo restore")
	from, to := servers.Settings(t), servers.Settings(t)
	full, empty := servers.Pool(t, from), servers.Pool(t, to)
	fixture.SellOut(t, full, fixture.Campaign(t, full, fixture.Draft(4)))
	servers.Exec(t, empty, `DROP SCHEMA public, clock, lease CASCADE; CREATE SCHEMA public`)
	out := paste(t, blocks(text), "TRIPRIZE_POSTGRES_URL="+from.Postgres.URL, "EMPTY_DATABASE_URL="+to.Postgres.URL,
		"TRIPRIZE_REDIS_URL="+from.Redis.URL, "PATH="+filepath.Dir(triprize(t))+":"+os.Getenv("PATH"))
	inOrder(t, out, "invariants hold")
	for _, table := range []string{"campaigns", "positions", "jobs", "purchases", "purchase_items", "commitments", "draw_secrets"} {
		var there, here int
		if err := full.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&there); err != nil {
			t.Fatal(err)
		}
		if err := empty.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&here); err != nil || here != there || there == 0 {
			t.Errorf("%s: %d rows of %d, %v", table, here, there, err)
		}
	}
}
