package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	api "triprize.example/client"
	"triprize/internal/domain/shape"
)

// draws measures from the commit of the last payment to the published result, and how long
// the proof takes to read. All positions but the last of each campaign are sold by SQL; the
// last is bought at the api. Both times are of the database's clock.
type draws struct {
	baseLength int
	campaigns  int
}

// drawScenarios are the sizes for which there are targets, without a beacon.
var drawScenarios = []scenario{
	{"draw-1275", draws{baseLength: 50, campaigns: 20}.run},
	{"draw-500500", draws{baseLength: shape.MaxBaseLength, campaigns: 1}.run},
}

// drawClaims are the targets of drawScenarios.
var drawClaims = []claim{
	{"draw-1275: from the last payment to the result, p95, ms", "below 100", "draw-1275", "", drawnP95},
	{"draw-500500: publication, ms", "below 10,000", "draw-500500", "", publicationTook},
	{"draw-500500: freeze and draw, ms", "below 10,000", "draw-500500", "", drawnP95},
	{"draw-500500: the proof is read, ms", "below 10,000", "draw-500500", "", proofTook},
}

// The figures of these scenarios.
const (
	publicationTook = "publication ms"
	drawnP95        = "last payment to result p95 ms"
	proofTook       = "proof ms"
)

func (d draws) run(ctx context.Context, s *setup, _ time.Duration) (result, error) {
	return s.on(ctx, migrated, func(sys *system) (r result, err error) {
		began := time.Now()
		if err := s.publish(ctx, sys.db, slices.Repeat([]int{d.baseLength}, d.campaigns)); err != nil {
			return r, err
		}
		published := time.Since(began) / time.Duration(d.campaigns)
		if err := sellAllButOne(ctx, sys.db); err != nil {
			return r, err
		}
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		took, proofs, err := d.finishAll(ctx, sys)
		if err != nil {
			return r, err
		}
		r = newResult(len(took), published, took)
		r.PerSecond = 0
		r.note(publicationTook, milliseconds(published))
		r.note(drawnP95, milliseconds(quantile(took, 95)))
		r.note(proofTook, milliseconds(proofs))
		r.wrong = append(sys.stop(), sys.violations(ctx)...)
		return r, nil
	})
}

// finishAll buys the last position of each campaign and waits for its draw. It returns the
// time of each draw, and the longest time of a proof.
func (d draws) finishAll(ctx context.Context, sys *system) (took []time.Duration, proofs time.Duration, err error) {
	c, err := api.New(sys.url(), sys.setup.appKey)
	if err != nil {
		return nil, 0, err
	}
	if err := sys.findCampaigns(ctx); err != nil {
		return nil, 0, err
	}
	for _, id := range sys.campaigns {
		job, err := c.Buy(ctx, id, api.PurchaseRequest{UserID: "the last", Selection: api.Selection{Quantity: 1},
			Payment: api.PaymentDraft{Method: api.PaymentDraftMethodExternal}})
		if err != nil {
			return nil, 0, err
		}
		if _, err := job.Purchased(); err != nil {
			return nil, 0, err
		}
		drawn, err := awaitDraw(ctx, sys.db, id)
		if err != nil {
			return nil, 0, err
		}
		took = append(took, drawn)
		began := time.Now()
		if err := readProof(ctx, c, id); err != nil {
			return nil, 0, err
		}
		proofs = max(proofs, time.Since(began))
	}
	return took, proofs, nil
}

// awaitDraw returns the time from the statement that began the draw, just before the last
// sale's commit, to the record of the draw.
func awaitDraw(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (time.Duration, error) {
	const patience = 2 * time.Minute
	for until := time.Now().Add(patience); time.Now().Before(until); {
		var took *float64
		err := db.QueryRow(ctx, `
			SELECT (SELECT extract(epoch FROM d.executed_at - c.draw_started_at) FROM campaigns c JOIN draws d ON d.campaign_id = c.id WHERE c.id = $1)`, id).Scan(&took)
		if err != nil {
			return 0, err
		}
		if took != nil {
			return time.Duration(*took * float64(time.Second)), nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, fmt.Errorf("campaign %s is not drawn after %s", id, patience)
}

func readProof(ctx context.Context, c *api.Client, id uuid.UUID) error {
	body, err := c.Proof(ctx, id)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

// sellAllButOne sells every position of every campaign, but one of each, to a buyer of its
// own. It does what sales do to the tables the draw reads, and nothing about jobs.
func sellAllButOne(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, statement := range []string{`SET LOCAL statement_timeout = 0`, `CREATE TEMPORARY TABLE sold ON COMMIT DROP AS
			SELECT campaign_id, layer, col, price, gen_random_uuid() AS id, gen_random_uuid() AS job FROM positions WHERE rank > 0`} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("sellAllButOne: %w", err)
			}
		}
		var b pgx.Batch
		b.Queue(`INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, state, result, attempts, accepted_at, finished_at, expires_at, purchase_id)
			SELECT job, 'bench', job::text, sha256('bench'), 'purchase', campaign_id, 'buyer-' || id, '{}', 'succeeded', jsonb_build_object('purchase_id', id), 1, now(), now(), now() + interval '1 day', id FROM sold`)
		b.Queue(`INSERT INTO purchases (id, campaign_id, user_id, client, job_id, amount, currency, payment_method, nonce, state, completed_at)
			SELECT id, campaign_id, 'buyer-' || id, 'bench', job, price, 'JPY', 'external', uuid_send(gen_random_uuid()), 'completed', clock_timestamp() FROM sold`)
		b.Queue(`INSERT INTO purchase_items (purchase_id, layer, col, price) SELECT id, layer, col, price FROM sold`)
		b.Queue(`UPDATE positions p SET state = 'sold', user_id = 'buyer-' || s.id, purchase_id = s.id, sold_at = clock_timestamp(), version = 1
			FROM sold s WHERE (p.campaign_id, p.layer, p.col) = (s.campaign_id, s.layer, s.col)`)
		b.Queue(`UPDATE campaigns SET positions_sold = positions_total - 1`)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("sellAllButOne: %w", err)
		}
		return nil
	})
}
