//go:build soak

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// Operators, sweeps, further system jobs and redeliveries call for the same draws, fifty
// at a time: there is one freeze, one draw and one result of each campaign.
func TestFiftyTriggersOfAllKindsAtOnceMakeOneDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2, Schedulers: 2, Beacon: 2, Env: []string{"TRIPRIZE_LOG_LEVEL=debug", "TRIPRIZE_SWEEPS_STUCK_DRAWS_AFTER=1s"}})
	ids := []uuid.UUID{drawable(s, false), drawable(s, true)}
	secrets := make(map[uuid.UUID][]byte)
	for _, id := range ids {
		sealed, err := drawing.SecretOf(t.Context(), s.DB, id)
		if err != nil {
			t.Fatal(err)
		}
		if secrets[id], err = fixture.Key(t).Open(sealed, id[:]); err != nil {
			t.Fatal(err)
		}
	}
	first := make(map[uuid.UUID]job.Ref)
	for _, id := range ids {
		first[id] = fixture.SellOut(t, s.DB, id)
	}
	client := queue.NewClient(s.Redis, s.Settings.Redis.Namespace)
	var all sync.WaitGroup
	for i := range 50 {
		for _, id := range ids {
			all.Go(func() { trigger(s, client, i, first[id]) })
		}
	}
	all.Wait()
	s.AwaitDrawn(ids...)
	servers.Eventually(t, "every draw job is final", func() bool {
		var open int
		err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = 'draw' AND state NOT IN ('succeeded', 'failed')`).Scan(&open)
		return err == nil && open == 0
	})
	expectRecordsOnce(s, ids...)
	for _, name := range []string{"worker-1", "worker-2", "api-1", "scheduler-1"} {
		log := s.Log(name)
		for _, secret := range secrets {
			for _, form := range []string{string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
				if bytes.Contains(log, []byte(form)) {
					t.Errorf("%s has logged a secret", name)
				}
			}
		}
	}
}

// trigger calls for a draw in one of five ways.
func trigger(s *fleet.System, client *queue.Client, i int, ref job.Ref) {
	var err error
	switch i % 5 {
	case 0, 1: // an operator
		a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+ref.CampaignID.String()+"/draw", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
		if a.Err != nil || a.Status != http.StatusAccepted {
			err = fmt.Errorf("an operator's request: %d, %w", a.Status, a.Err)
		}
	case 2: // a sweep
		sweep := []string{"stuck-draws", "stale-locks", "lost-jobs"}[i%3]
		if a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/"+sweep, map[string]string{"Idempotency-Key": uuid.NewString()}, nil); a.Err != nil || a.Status >= http.StatusInternalServerError {
			err = fmt.Errorf("sweep %s: %d, %w", sweep, a.Status, a.Err)
		}
	case 3: // a further job of the system
		var made []job.Message
		err = postgres.InTx(s.T.Context(), s.DB, func(tx pgx.Tx) (err error) {
			made, err = job.Insert(s.T.Context(), tx, job.DrawRequest(ref.CampaignID, job.BySellOut, "/"+uuid.NewString(), time.Hour, job.Origin{}))
			return err
		})
		for _, m := range made {
			err = client.Enqueue(s.T.Context(), m.Task())
		}
	case 4: // a redelivery
		err = client.Enqueue(s.T.Context(), job.Message{ID: uuidv7.New(), Kind: job.KindDraw, Delivery: 1 + i%2, Jobs: []job.Ref{ref}}.Task())
	}
	if err != nil {
		s.T.Error(err)
	}
}

// Relays that are late, lie, are forked or away delay a draw. When one tells the truth, it
// is drawn with that.
func TestRelaysThatLieToAFleetDelayADrawAndDoNotChangeIt(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 3})
	faults := []drandsim.Faults{{Forked: true}, {Wrong: drandsim.WrongOtherRound}, {Away: drandsim.AwayRefuse}}
	for i, relay := range s.Beacon.Relays() {
		if err := relay.SetFaults(faults[i]); err != nil {
			t.Fatal(err)
		}
	}
	id := drawable(s, true)
	fixture.SellOut(t, s.DB, id)
	servers.Eventually(t, "the draw waits for a relay that confirms the clock", func() bool {
		w, waits, err := fixture.DrawWait(t.Context(), s.DB, id)
		return err == nil && waits && strings.Contains(w.Reason, "nothing is frozen yet")
	})
	if n := servers.Value[int](t, s.DB, `SELECT count(*) FROM freezes`); n != 0 {
		t.Errorf("%d lists are frozen by a clock that nobody has confirmed", n)
	}
	if err := s.Beacon.Relays()[1].SetFaults(drandsim.Faults{Wrong: drandsim.WrongNumber}); err != nil { // it confirms the clock, and never has the round
		t.Fatal(err)
	}
	servers.Eventually(t, "the draw waits for a round that is due", func() bool {
		f, ok, err := drawing.FreezeOf(t.Context(), s.DB, id)
		if err != nil || !ok {
			return false
		}
		w, waits, err := fixture.DrawWait(t.Context(), s.DB, id)
		return err == nil && waits && w.RetryAt.After(s.Beacon.Chain().DueAt(*f.Round))
	})
	if n := s.Draws(); n != 0 {
		t.Errorf("%d draws by what liars say", n)
	}
	if err := s.Beacon.Relays()[0].SetFaults(drandsim.Faults{Wrong: drandsim.WrongRandomness}); err != nil { // the true signature, under a false randomness
		t.Fatal(err)
	}
	if err := s.Beacon.Relays()[2].SetFaults(drandsim.Faults{}); err != nil {
		t.Fatal(err)
	}
	s.AwaitDrawn(id)
	expectRecordsOnce(s, id)
}
