package holds

import (
	"time"

	"github.com/google/uuid"
)

// SetClock sets the clock by which taken positions are remembered.
func (s *Service) SetClock(now func() time.Time) { s.taken.now = now }

// Pending returns how many requests wait for the transaction of a campaign.
func (s *Service) Pending(campaignID uuid.UUID) int { return s.creates.Of(campaignID).Pending() }
