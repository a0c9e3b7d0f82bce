package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestTheLogNamesACampaignThatStaysLockedOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	log := &servers.Journal{}
	p.sweeper = upkeep.New(p.settings, p.db, p.rdb, slog.New(slog.NewTextHandler(log, nil)), upkeep.Options{})
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	_, messages, err := job.Accept(t.Context(), p.db, []job.Request{fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.PurchaseRequest(t, id, "b", 0, 1)})
	if err != nil || job.Snooze(t.Context(), p.db, messages[0].ID, nil) != nil {
		t.Fatal(err)
	}
	tx, err := p.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL application_name = 'somebody'`)
	servers.Exec(t, tx, `SELECT FROM campaigns WHERE id = $1 FOR UPDATE`, id)
	lines := func(level slog.Level, parts ...string) (n int) {
		for line := range strings.Lines(log.String()) {
			found := strings.Contains(line, "level="+level.String())
			for _, part := range append(parts, "campaign="+id.String(), "jobs=2") {
				found = found && strings.Contains(line, part)
			}
			if found {
				n++
			}
		}
		return n
	}
	for _, after := range []time.Duration{time.Hour, 0, 0, 0} {
		p.sweeper.SetWarnAfter(after)
		if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 0 || got["looked_at"] != 0 {
			t.Errorf("while it is locked: %v", got)
		}
		if warned := lines(slog.LevelWarn); warned > 0 && after > 0 || p.sweeper.LockedCampaigns() != 1 {
			t.Errorf("%d warnings after %s, %d campaigns are locked", warned, after, p.sweeper.LockedCampaigns())
		}
	}
	if warned := lines(slog.LevelWarn, fmt.Sprint("pid=", tx.Conn().PgConn().PID()), "application=somebody"); warned != 1 {
		t.Errorf("%d warnings: %s", warned, log)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 2 || p.pending() != 1 || p.sweeper.LockedCampaigns() != 0 {
		t.Errorf("when it is free: %v, %d tasks, %d campaigns are locked", got, p.pending(), p.sweeper.LockedCampaigns())
	}
	if told := lines(slog.LevelInfo, "not locked any more"); told != 1 {
		t.Errorf("%d lines about the end: %s", told, log)
	}
	fixture.Sound(t, p.db)
}

// A purchase of no campaign is refused by a worker: it must not wait for one.
func TestJobsOfNoCampaignWaitForNothing(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	_, messages, err := job.Accept(t.Context(), p.db, []job.Request{fixture.PurchaseRequest(t, uuid.New(), "a", 0, 1)})
	if err != nil || job.Snooze(t.Context(), p.db, messages[0].ID, nil) != nil {
		t.Fatal(err)
	}
	if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 1 || p.pending() != 1 {
		t.Errorf("%v, %d tasks", got, p.pending())
	}
}
