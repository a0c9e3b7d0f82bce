//go:build failpoint

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAPauseOfALockedCampaignEndsAndNamesTheSession(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s, id := newService(t, db), fixture.Campaign(t, db, fixture.Draft(4))
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	servers.Exec(t, tx, `SET LOCAL application_name = 'somebody'`)
	servers.Exec(t, tx, `UPDATE campaigns SET name = 'another' WHERE id = $1`, id) // a lock that a change has taken
	request := publication(id)
	request.Kind = job.KindCampaignPause
	inTime, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.Pause(inTime, request)
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), fmt.Sprintf("pid %d and application_name %q", tx.Conn().PgConn().PID(), "somebody")) {
		t.Errorf("while it is locked: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Pause(t.Context(), request); err != nil || done.Replayed || done.Job.Problem != nil {
		t.Errorf("with the same key, when it is free: %+v, %v", done, err)
	}
}
