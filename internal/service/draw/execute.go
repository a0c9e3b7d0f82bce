package draw

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// execute draws under a claim. When that fails it releases the lock.
func (d *Drawer) execute(ctx context.Context, ref job.Ref, execution campaign.Execution) (job.Outcome, error) {
	ctx, stop := d.keepAlive(ctx, execution)
	defer stop()
	selection, err := d.choose(ctx, ref.CampaignID)
	failpoint.Hit("draw.record", func() []string { return []string{ref.CampaignID.String()} })
	var outcome job.Outcome
	if err == nil {
		outcome, err = d.record(ctx, ref, execution, selection)
	}
	if err == nil {
		return outcome, nil
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.lease)
	defer cancel()
	lost := postgres.Persist(release, func() error { // the row may be locked for a moment
		return postgres.InTx(release, d.db, func(tx pgx.Tx) error { return execution.Release(release, tx) })
	})
	if lost != nil && !errors.Is(lost, campaign.ErrFenced) {
		d.logger.Warn("execution lock not released; it ends with its lease", "campaign", ref.CampaignID, "error", lost)
	}
	return job.Outcome{}, err
}

// keepAlive renews the claim three times per lease. The context it returns ends when
// the claim is lost.
func (d *Drawer) keepAlive(ctx context.Context, execution campaign.Execution) (held context.Context, stop func()) {
	held, lose := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(d.lease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-ticker.C:
			}
			err := postgres.InTx(held, d.db, func(tx pgx.Tx) error { return execution.Renew(held, tx) })
			if errors.Is(err, campaign.ErrFenced) {
				lose(err)
				return
			} // try again after another error; the fence decides in the end
		}
	}()
	return held, func() {
		lose(nil)
		<-done
	}
}

// selection is what a draw is recorded with.
type selection struct {
	root    [32]byte
	secret  []byte
	winners []fairdraw.Winner
}

// choose loads the inputs of the draw, checks that they have not changed since
// publication and sell-out, and selects the winners. It writes nothing.
func (d *Drawer) choose(ctx context.Context, id uuid.UUID) (selection, error) {
	bound, ok, err := campaign.CommitmentOf(ctx, d.db, id)
	if err != nil {
		return selection{}, err
	}
	if !ok {
		return selection{}, fmt.Errorf("draw.choose(%s): the campaign has no commitment", id)
	}
	secret, err := d.key.Open(bound.SealedSecret, id[:])
	if err != nil {
		return selection{}, fmt.Errorf("draw.choose(%s): %w", id, err)
	}
	if c := fairdraw.Commitment(id, bound.Rules, secret); !bytes.Equal(c[:], bound.Commitment) {
		return selection{}, fmt.Errorf("draw.choose(%s): rules and secret are not what was committed to", id)
	}
	var rules fairdraw.Rules
	if err := json.Unmarshal(bound.Rules, &rules); err != nil {
		return selection{}, fmt.Errorf("draw.choose(%s): the rules: %w", id, err)
	}
	frozen, err := campaign.FrozenRoot(ctx, d.db, id)
	if err != nil {
		return selection{}, err
	}
	sold, err := purchase.SoldList(ctx, d.db, id)
	if err != nil {
		return selection{}, err
	}
	root, err := fairdraw.Root(sold)
	if err != nil {
		return selection{}, err
	}
	if root != frozen {
		return selection{}, fmt.Errorf("draw.choose(%s): the sold list has root %x, the one frozen at sell-out had %x", id, root, frozen)
	}
	entropy := fairdraw.Entropy(secret, id, root, nil)
	return selection{root: root, secret: secret, winners: fairdraw.Select(rules.Prizes, fairdraw.Lines(sold), fairdraw.NewStream(entropy))}, nil
}

// record writes the draw in one transaction. Its first statement is the fence: it
// fails when the lock or its version is no longer ours, and nothing is written.
func (d *Drawer) record(ctx context.Context, ref job.Ref, execution campaign.Execution, s selection) (job.Outcome, error) {
	result := Result{CampaignID: ref.CampaignID, Trust: TrustOperator, Root: hex.EncodeToString(s.root[:]),
		Secret: hex.EncodeToString(s.secret), Winners: publish(s.winners)}
	outcome := job.Outcome{ID: ref.ID}
	err := postgres.InTx(ctx, d.db, func(tx pgx.Tx) error {
		if err := execution.Complete(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version)
			VALUES ($1, $2, $3, $4, '', $5, $6) RETURNING executed_at`,
			ref.CampaignID, result.Trust, s.root[:], s.secret, result.Winners, execution.Version).Scan(&result.ExecutedAt)
		if err != nil {
			return fmt.Errorf("draw.record(%s): %w", ref.CampaignID, err)
		}
		var numbers, columns []int
		for _, w := range result.Winners {
			if w.Column != nil {
				numbers, columns = append(numbers, w.Prize), append(columns, *w.Column)
			}
		}
		if err := campaign.AwardPrizes(ctx, tx, ref.CampaignID, numbers, columns); err != nil {
			return err
		}
		if outcome.Result, err = json.Marshal(result); err != nil {
			return fmt.Errorf("draw.record(%s): %w", ref.CampaignID, err)
		}
		return job.Settle(ctx, tx, outcome)
	})
	return outcome, err
}
