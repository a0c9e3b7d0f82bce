package holds

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
	"triprize/internal/store/job"
)

func TestATakenPositionIsRememberedNoLongerThanItIsTaken(t *testing.T) {
	t.Parallel()
	m, campaignID := newMemory(), uuid.New()
	now := time.Now()
	for column, c := range []struct {
		since     time.Time
		remaining time.Duration
		known     bool
	}{
		{now, time.Hour, true},
		{now.Add(-remembered), time.Hour, false}, // long ago
		{now, 0, false},
		{now, -time.Second, false}, // over by the time it was looked at
		{now.Add(-100 * time.Millisecond), 90 * time.Millisecond, false},
		{now.Add(-100 * time.Millisecond), 900 * time.Millisecond, true},
	} {
		at := triangle.Position{Layer: 9, Column: column + 1}
		m.note(place{campaignID, at}, c.since, c.remaining)
		ask := Ask{Job: job.Request{CampaignID: campaignID}, Positions: []triangle.Position{{Layer: 1, Column: 1}, at}}
		gone := m.among(ask)
		if (len(gone) == 1) != c.known {
			t.Errorf("case %d: %v", column, gone)
		}
		if len(gone) == 1 && (gone[0].Pointer != "/positions/1" || gone[0].Detail != "position 9/"+string(rune('1'+column))+" is taken") {
			t.Errorf("it is named %+v", gone[0])
		}
		ask.Job.CampaignID = uuid.New()
		if gone := m.among(ask); len(gone) != 0 {
			t.Errorf("in another campaign: %v", gone)
		}
	}
}

// Somebody found it taken, and before that could be noted it was given back.
func TestAReleaseIsNotForgottenForAnOlderSighting(t *testing.T) {
	t.Parallel()
	m, p := newMemory(), place{uuid.New(), triangle.Position{Layer: 2, Column: 1}}
	ask := Ask{Job: job.Request{CampaignID: p.campaignID}, Positions: []triangle.Position{p.Position}}
	before := time.Now()
	m.note(p, before, time.Hour)
	m.forget(p)
	m.note(p, before, time.Hour)
	if gone := m.among(ask); len(gone) != 0 {
		t.Errorf("an older sighting: %v", gone)
	}
	m.note(p, time.Now(), time.Hour)
	if gone := m.among(ask); len(gone) != 1 {
		t.Errorf("a younger sighting: %v", gone)
	}
}
