//go:build failpoint

package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestAKeyIsFreeWhenItsRefusalIsGone(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1})
	id := s.Campaign(4)
	first := fleet.Order{Campaign: id, User: "a", Key: "k", Quantity: 10, Wait: true}
	blocking := s.Buy(fleet.Order{Campaign: id, User: "b", Key: "b", Wait: true})
	refused := s.Buy(first)
	mustAnswer(t, "got", refused, job.Failed)
	servers.Exec(t, s.DB, `UPDATE jobs SET accepted_at = accepted_at - interval '1 day'`)
	wantAnswer(t, "a day later", s.Buy(first), refused.ID)
	servers.Exec(t, s.DB, `UPDATE refused_jobs SET refused_at = refused_at - interval '1 day'`)
	report := fleet.As[fleet.SweepReport](t, s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/old-records", nil, nil))
	if report.Counts["refused_deleted"] != 1 || report.More || report.Error != "" {
		t.Errorf("got %+v", report)
	}
	wantAnswer(t, "the refused job", s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+refused.ID.String(), nil, nil), 404)
	wantAnswer(t, "the key of a purchase that succeeded", s.Buy(fleet.Order{Campaign: id, User: "b", Key: "b", Wait: true}), blocking.ID)
	if a := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k", Quantity: 1, Wait: true}); a.State != job.Succeeded { // even another request
		t.Errorf("the key of the refused one: %v %s", a, a.Body)
	}
}

func TestASweepAskedForOverHTTPEndsWithTheRequestAndSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_API_REQUEST_TIMEOUT=" + limit.String(), "TRIPRIZE_SCHEDULER_BATCH_SIZE=10"}})
	servers.Exec(t, s.DB, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, state, result, expires_at, finished_at)
		SELECT gen_random_uuid(), 'test', i::text, sha256('test'), 'wallet-credit', 'succeeded', '{}', clock_timestamp() - interval '1 s', clock_timestamp()
		FROM generate_series(1, 25) AS i`)
	remove := failpoint.Set("sweep.deleted", s.Settings.Redis.Namespace, func() { time.Sleep(limit * 83 / 100) })
	run := func() fleet.SweepReport {
		return fleet.As[fleet.SweepReport](t, s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/old-records", nil, nil))
	}
	if r := run(); !r.More || r.Error != "" || r.Counts["batches"] > 1 {
		t.Errorf("the first: %+v", r)
	}
	remove()
	if r := run(); r.More || r.Error != "" || r.Counts["jobs_deleted"] < 15 {
		t.Errorf("the second: %+v", r)
	}
}
