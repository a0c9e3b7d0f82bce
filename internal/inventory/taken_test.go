package inventory

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
)

func TestATakenPositionIsRememberedNoLongerThanItIsTaken(t *testing.T) {
	t.Parallel()
	m, campaignID := newTakenCache(), uuid.New()
	now := time.Now()
	m.now = func() time.Time { return now }
	for column, c := range []struct {
		since     time.Time
		remaining time.Duration
		known     bool
	}{
		{now, time.Hour, true},
		{now.Add(-takenFor), time.Hour, false}, // long ago
		{now, 0, false},
		{now, -time.Second, false}, // over by the time it was looked at
		{now.Add(-100 * time.Millisecond), 90 * time.Millisecond, false},
		{now.Add(-100 * time.Millisecond), 900 * time.Millisecond, true},
	} {
		at := shape.Position{Layer: 9, Column: column + 1}
		m.add(PositionID{CampaignID: campaignID, Position: at}, c.since, c.remaining, "")
		request := HoldRequest{Job: job.Request{CampaignID: campaignID}, Selection: Selection{Positions: []shape.Position{{Layer: 1, Column: 1}, at}}}
		gone := m.of(request)
		if (len(gone) == 1) != c.known {
			t.Errorf("case %d: %v", column, gone)
		}
		if len(gone) == 1 && gone[0] != 1 {
			t.Errorf("it is at %d", gone[0])
		}
		request.Job.CampaignID = uuid.New()
		if gone := m.of(request); len(gone) != 0 {
			t.Errorf("in another campaign: %v", gone)
		}
	}
}

// A request found the position taken. It was given back before that could be noted.
func TestAReleaseIsNotForgottenForAnOlderSighting(t *testing.T) {
	t.Parallel()
	m, p := newTakenCache(), PositionID{CampaignID: uuid.New(), Position: shape.Position{Layer: 2, Column: 1}}
	request := HoldRequest{Job: job.Request{CampaignID: p.CampaignID}, Selection: Selection{Positions: []shape.Position{p.Position}}}
	before := time.Now()
	now := before
	m.now = func() time.Time { return now }
	m.add(p, before, time.Hour, "")
	now = now.Add(time.Millisecond)
	m.remove(p)
	m.add(p, before, time.Hour, "")
	if gone := m.of(request); len(gone) != 0 {
		t.Errorf("an older sighting: %v", gone)
	}
	now = now.Add(time.Millisecond)
	m.add(p, now, time.Hour, "")
	if gone := m.of(request); len(gone) != 1 {
		t.Errorf("a younger sighting: %v", gone)
	}
}
