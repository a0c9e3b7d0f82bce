package inventory

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// Need is what the tests of the search ask for, and NewHold what those of changes make.
type (
	Need    = need
	NewHold = newHold
)

// MaxAdjacentLayer bounds the layers in which positions are found side by side.
const MaxAdjacentLayer = maxAdjacentLayer

// The parts of FindStock, and of the changes of holds.
var (
	FindFree   = findFree
	CountGone  = countGone
	FindRuns   = findRuns
	RunsWanted = runsWanted
	Find       = find

	QueueHold   = queueHold
	QueueExtend = queueExtend
)

// SetClock sets the clock by which taken positions are remembered.
func (s *Holds) SetClock(now func() time.Time) { s.taken.now = now }

// DB returns what the service reads from.
func (s *Holds) DB() postgres.DB { return s.db }

// SetRowWait sets how long a transaction waits for its campaign, the first time and
// when it was found locked.
func (s *Holds) SetRowWait(first, again time.Duration) { s.rowWait, s.retryWait = first, again }

// Pending returns how many requests wait for the transaction of a campaign.
func (s *Holds) Pending(campaignID uuid.UUID) int { return s.campaigns.Pending(campaignID) }
