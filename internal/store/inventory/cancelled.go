package inventory

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// AllHolds is the limit of QueueFindActive that is none.
const AllHolds = 0

// QueueFindActive finds up to limit active holds of a campaign, or AllHolds, those whose
// deadline has passed too, for [QueueRelease]. Queue it after the statement that locks the
// campaign.
func QueueFindActive(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]*Hold) {
	b.Queue(`SELECT `+recorded+` FROM holds WHERE campaign_id = $1 AND state = 'active' ORDER BY id LIMIT nullif($2::integer, 0)`, campaignID, limit).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Hold, error) {
			h, err := scanHold(row)
			return &h, err
		})
		return err
	})
}

// QueueBuyers reads the purchases that have sold positions of a campaign, each once, in
// the order of their ids: at most limit of them, after the given one (zero: from the
// start).
func QueueBuyers(b *pgx.Batch, campaignID, after uuid.UUID, limit int, purchases *[]uuid.UUID) {
	b.Queue(`
		SELECT DISTINCT purchase_id FROM positions WHERE campaign_id = $1 AND state = 'sold' AND purchase_id > $2
		ORDER BY purchase_id LIMIT $3`, campaignID, after, limit).Query(func(rows pgx.Rows) (err error) {
		*purchases, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
}
