package job

import (
	"crypto/sha256"
	"time"

	"triprize/internal/domain/uuidv7"

	"github.com/google/uuid"
)

// DrawRequest returns the request for the job that draws a sold-out campaign. The
// first job of a campaign has the key lottery-draw-{id}. A new job, after the first
// was given up, needs a suffix.
func DrawRequest(campaignID uuid.UUID, suffix string, keep time.Duration) Request {
	key := "lottery-draw-" + campaignID.String() + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindDraw, CampaignID: campaignID, Keep: keep}
}
