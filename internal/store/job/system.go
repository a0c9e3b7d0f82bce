package job

import (
	"crypto/sha256"
	"time"

	"triprize/internal/domain/uuidv7"

	"github.com/google/uuid"
)

// By is what has triggered a draw.
type By string

// What triggers draws.
const (
	BySellOut  By = "sell_out"
	BySaleEnd  By = "sale_end"
	ByOperator By = "operator" // over HTTP
	BySweep    By = "sweep"    // its job was given up
)

// DrawRequest returns the request for the job that draws a sold-out campaign. The
// first job of a campaign has the key lottery-draw-{id}. A new job, after the first
// was given up, needs a suffix. from is empty when a sweep makes it.
func DrawRequest(campaignID uuid.UUID, by By, suffix string, keep time.Duration, from Origin) Request {
	key := "lottery-draw-" + campaignID.String() + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindDraw, CampaignID: campaignID, Keep: keep, By: by, Origin: from}
}

// UnsoldRequest returns the request for the job that cancels a campaign because its sale
// ended before everything was sold. There is one for each end of a sale: an end that was
// put off is another one. A new job, after the first was given up, needs a suffix.
func UnsoldRequest(campaignID uuid.UUID, end time.Time, payload []byte, suffix string, keep time.Duration) Request {
	key := "unsold-" + campaignID.String() + "-" + end.UTC().Format("20060102T150405.000000Z") + suffix
	return Request{ID: uuidv7.New(), Client: System, Key: key, Hash: sha256.Sum256([]byte(key)), Kind: KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Keep: keep}
}
