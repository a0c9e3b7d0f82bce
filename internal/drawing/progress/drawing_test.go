package progress_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAFollowerIsToldOfTheFreezeAndOfEveryWait(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, id)
	seen, draws := make(map[string]string), make(map[string]string)
	look := func(what string) progress.Progress {
		t.Helper()
		list, err := progress.Read(t.Context(), db, []uuid.UUID{id})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if before, known := seen[list[0].Version]; known {
			t.Errorf("%s is told as %s", what, before)
		}
		seen[list[0].Version] = what
		if of := list[0].DrawVersion(); draws[of] != "" {
			t.Errorf("%s is told to the followers of the draw as %s", what, draws[of])
		} else {
			draws[of] = what
		}
		return list[0]
	}
	if p := look("drawing"); p.Draw != nil {
		t.Errorf("before the freeze: %+v", p.Draw)
	}
	before, err := progress.Read(t.Context(), db, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	before[0].Counts.Sold--
	before[0].Board--
	if draws[before[0].DrawVersion()] != "drawing" {
		t.Error("a sale is told to the followers of the draw")
	}
	until := time.Now().Add(time.Minute)
	wait := func(reason string, at time.Time) {
		t.Helper()
		if err := drawing.SetWait(t.Context(), db, id, job.Waiting{Reason: reason, RetryAt: at}); err != nil {
			t.Fatal(err)
		}
	}
	wait("the clock is behind", until)
	if p := look("a freeze that waits"); p.Draw != nil || p.Waiting == nil || p.Waiting.Reason != "the clock is behind" {
		t.Errorf("a freeze that waits: %+v, %+v", p.Draw, p.Waiting)
	}
	root := fairdraw.Hash{1}
	err = postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		return drawing.InsertFreeze(t.Context(), tx, drawing.Freeze{CampaignID: id, Record: []byte("{}"), Root: root, Count: 6, FrozenAt: time.Now()}, nil, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := look("frozen"); *p.Draw.FreezeHash != fairdraw.FreezeHash([]byte("{}")) {
		t.Errorf("frozen: %+v", p.Draw)
	}
	wait("the round is not due", until)
	look("waiting for the round")
	wait("the round is not due", until.Add(time.Second))
	look("waiting for longer")
	if err := drawing.EndWait(t.Context(), db, id); err != nil {
		t.Fatal(err)
	}
	if p := look("going on"); p.Waiting != nil {
		t.Errorf("after the wait: %+v", p.Waiting)
	}
}
