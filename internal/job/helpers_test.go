package job_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// request is a request of the client "shop" with a hash of its own content.
func request(key, content string) job.Request {
	return job.Request{ID: uuidv7.New(), Client: "shop", Key: key, Hash: sha256.Sum256([]byte(content)), Kind: job.KindPurchase,
		CampaignID: uuid.New(), UserID: "u", Payload: []byte(`{}`), Retention: time.Hour, HTTPStatus: 201}
}

// accept accepts requests at once, and returns what [told] and [sizes] say.
func accept(t *testing.T, db postgres.DB, requests ...job.Request) (told, messages string) {
	t.Helper()
	done, sent, err := job.Accept(t.Context(), db, requests)
	servers.NoError(t, err)
	return toldOf(requests, done), sizes(sent)
}

// toldOf says for each request which of the requests has made its job, counted from 1, and how that was found; or
// why there is none.
func toldOf(requests []job.Request, done []job.Accepted) string {
	words := make([]string, len(done))
	for i, d := range done {
		switch at := slices.IndexFunc(requests, func(r job.Request) bool { return r.ID == d.Job.ID }); {
		case d.Err != nil && d.Job.ID == uuid.Nil:
			words[i] = d.Err.Error()
			continue
		case d.Err != nil:
			words[i] = "a job, and " + d.Err.Error()
		default:
			words[i] = fmt.Sprint(at + 1)
		}
		if d.Reused {
			words[i] += " reused"
		} else if d.Replayed {
			words[i] += " replayed"
		}
	}
	return strings.Join(words, ", ")
}

// sizes says how many jobs messages have, by their kinds.
func sizes(messages []job.Message) string {
	words := make([]string, len(messages))
	for i, m := range messages {
		words[i] = fmt.Sprint(m.Kind, " ", len(m.Jobs))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// accepted accepts n jobs, in one message, and returns their ids.
func accepted(t *testing.T, db *pgxpool.Pool, n int) []uuid.UUID {
	t.Helper()
	requests, ids := make([]job.Request, n), make([]uuid.UUID, n)
	for i := range requests {
		requests[i] = request(uuid.NewString(), "a")
		ids[i] = requests[i].ID
	}
	accept(t, db, requests...)
	return ids
}

// inTx does something in a transaction that must not fail.
func inTx(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) {
	t.Helper()
	servers.NoError(t, postgres.InTx(context.WithoutCancel(t.Context()), db, do))
}

func complete(t *testing.T, db *pgxpool.Pool, o job.Outcome) error {
	t.Helper()
	return postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return job.Complete(t.Context(), tx, &o) })
}

// fail fails jobs.
func fail(t *testing.T, db *pgxpool.Pool, ids ...uuid.UUID) {
	t.Helper()
	if failed, err := job.GiveUp(t.Context(), db, ids, job.Problem{Code: "internal-error", Detail: "d"}); err != nil || len(failed) != len(ids) {
		t.Fatal(failed, err)
	}
}
