package draw

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/job"
)

// choose selects the winners from the secret, the frozen list and the randomness, and from
// nothing else. The list must still be the frozen one. It writes nothing.
func (a *attempt) choose(ctx context.Context, randomness []byte) ([]fairdraw.Winner, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	id := a.ref.CampaignID
	if a.sold == nil {
		tree, err := a.read(drawrecord.ListOf(ctx, a.db, id))
		if err != nil {
			return nil, err
		}
		if root := tree.Root(); root != a.frozen.Root || tree.Count() != a.frozen.Count {
			return nil, fmt.Errorf("draw.choose(%s): the stored list has root %s over %d positions, the frozen one had %s over %d", id, root, tree.Count(), a.frozen.Root, a.frozen.Count)
		}
	}
	entropy := fairdraw.Entropy(a.secret[:], id, a.frozen.Root, randomness)
	return fairdraw.Select(a.rules.Prizes, a.sold, fairdraw.NewStream(entropy)), nil
}

// record writes the draw in one transaction. Its first statement is the fence: it
// fails when the lock or its version is no longer ours, and nothing is written.
func (a *attempt) record(ctx context.Context, randomness []byte, winners []fairdraw.Winner) (job.Outcome, error) {
	id := a.ref.CampaignID
	drawn := drawrecord.Draw{CampaignID: id, Trust: a.trust(), Root: a.frozen.Root, Secret: *a.secret, Randomness: randomness,
		Winners: publish(winners), Version: a.execution.Version}
	outcome := job.Outcome{ID: a.ref.ID}
	err := postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		if err := a.execution.Complete(ctx, tx); err != nil {
			return err
		}
		if err := drawrecord.InsertDraw(ctx, tx, &drawn); err != nil {
			return err
		}
		var numbers, columns []int
		for _, w := range drawn.Winners {
			if w.Column != nil {
				numbers, columns = append(numbers, w.Prize), append(columns, *w.Column)
			}
		}
		if err := campaign.AwardPrizes(ctx, tx, id, numbers, columns); err != nil {
			return err
		}
		if err := drawrecord.EndWait(ctx, tx, id); err != nil {
			return err
		}
		form, err := campaign.ShapeOf(ctx, tx, id)
		if err != nil {
			return err
		}
		result, err := json.Marshal(resultOf(drawn, form))
		if err != nil {
			return fmt.Errorf("draw.record(%s): %w", id, err)
		}
		outcome.Result = result
		return job.Finalize(ctx, tx, &outcome)
	})
	if err == nil {
		a.log.Info("draw completed", slog.String("from", string(campaign.Drawing)), slog.String("to", string(campaign.Completed)), slog.Int("winners", len(drawn.Winners)), telemetry.Took(outcome.Job.Took))
	}
	return outcome, err
}
