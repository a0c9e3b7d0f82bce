package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// startDraws ends the sale of every campaign whose last position this transaction sells:
// the campaign is drawing from its commit on, and a job draws it. The sold list is frozen
// by the draw's first step: this transaction has others to serve, and the list cannot
// change any more. It happens once per campaign, so its round trips do not matter.
//
// Reserved positions are not sold: while a payment is pending, no draw begins. Where what is
// sold at the end is drawn, the last payment that was waited for begins the draw, however
// it has ended.
func (s *Seller) startDraws(ctx context.Context, tx pgx.Tx, campaigns map[uuid.UUID]*campaign.Status, changes campaign.Changes, report *Report) error {
	for _, id := range slices.SortedFunc(maps.Keys(changes), uuidv7.Compare) {
		counts, sold := campaigns[id].Counts, changes[id].Sold
		if sold <= 0 || counts.Sold+sold < counts.Total {
			made, err := s.endIfDue(ctx, tx, campaigns[id], changes[id], report.Finalized)
			if err != nil {
				return err
			}
			report.Messages = append(report.Messages, made...)
			continue
		}
		if err := campaign.StartDraw(ctx, tx, id); err != nil {
			return fmt.Errorf("startDraws: %w", err)
		}
		made, err := outbox.Insert(ctx, tx, job.DrawRequest(id, job.BySellOut, "", s.keepJobs, job.OriginIn(report.Finalized, id)))
		if err != nil {
			return fmt.Errorf("startDraws(%s): %w", id, err)
		}
		report.Messages = append(report.Messages, made...)
	}
	return nil
}
