package drawing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
)

// plan is what a campaign has bound its draw to.
type plan struct {
	text       []byte // the rules, canonical JSON
	rules      fairdraw.Rules
	commitment fairdraw.Hash
	chain      beacon.Chain // that the rules name, if they name one
}

// planOf returns the plan of a published campaign.
func planOf(ctx context.Context, db postgres.DB, id uuid.UUID) (plan, error) {
	p, ok, err := findPlan(ctx, db, id)
	if err == nil && !ok {
		err = fmt.Errorf("drawing.planOf(%s): the campaign has no commitment", id)
	}
	return p, err
}

// findPlan returns the plan of a campaign, or false before its publication.
func findPlan(ctx context.Context, db postgres.DB, id uuid.UUID) (p plan, ok bool, err error) {
	bound, ok, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil || !ok {
		return p, false, err
	}
	p.text, p.commitment = bound.Rules, fairdraw.Hash(bound.Commitment)
	if err := json.Unmarshal(bound.Rules, &p.rules); err != nil {
		return p, false, fmt.Errorf("drawing.findPlan(%s): the rules: %w", id, err)
	}
	if p.rules.Beacon == nil {
		return p, true, nil
	}
	p.chain, ok, err = ChainOf(ctx, db, p.rules.Beacon.ChainHash)
	if err != nil {
		return p, false, err
	}
	if !ok || p.chain.Hash() != p.rules.Beacon.ChainHash || p.chain.PeriodS != p.rules.Beacon.PeriodS {
		return p, false, fmt.Errorf("drawing.findPlan(%s): the chain %s, which the rules name, is not stored as they name it", id, p.rules.Beacon.ChainHash)
	}
	return p, true, nil
}

// trust is the level of trust that the rules promise.
func (p plan) trust() string {
	if p.rules.Beacon != nil {
		return fairdraw.TrustBeacon
	}
	return fairdraw.TrustOperator
}

// check returns an error when secret is not the one committed to.
func (p plan) check(id uuid.UUID, secret []byte) error {
	if fairdraw.Hash(fairdraw.Commitment(id, p.text, secret)) != p.commitment {
		return fmt.Errorf("drawing(%s): rules and secret are not what was committed to", id)
	}
	return nil
}

// choose selects the winners from the secret, the frozen list and the randomness, and from
// nothing else. The list must still be the frozen one. It writes nothing.
func (a *attempt) choose(ctx context.Context, randomness []byte) ([]fairdraw.Winner, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	id := a.ref.CampaignID
	if a.sold == nil {
		tree, err := a.read(ListOf(ctx, a.db, id))
		if err != nil {
			return nil, err
		}
		if root := tree.Root(); root != a.frozen.Root || tree.Count() != a.frozen.Count {
			return nil, fmt.Errorf("drawing.choose(%s): the stored list has root %s over %d positions, the frozen one had %s over %d", id, root, tree.Count(), a.frozen.Root, a.frozen.Count)
		}
	}
	entropy := fairdraw.Entropy(a.secret[:], id, a.frozen.Root, randomness)
	return fairdraw.Select(a.rules.Prizes, a.sold, fairdraw.NewStream(entropy)), nil
}

// record writes the draw in one transaction. Its first statement is the fence: it
// fails when the lock or its version is no longer ours, and nothing is written.
func (a *attempt) record(ctx context.Context, randomness []byte, winners []fairdraw.Winner) (job.Outcome, error) {
	id := a.ref.CampaignID
	drawn := Draw{CampaignID: id, Trust: a.trust(), Root: a.frozen.Root, Secret: *a.secret, Randomness: randomness,
		Winners: publish(winners), Version: a.execution.Version}
	outcome := job.Outcome{ID: a.ref.ID}
	err := postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		if err := a.execution.Complete(ctx, tx); err != nil {
			return err
		}
		if err := insertDraw(ctx, tx, &drawn); err != nil {
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
		if err := EndWait(ctx, tx, id); err != nil {
			return err
		}
		form, err := campaign.ShapeOf(ctx, tx, id)
		if err != nil {
			return err
		}
		result, err := json.Marshal(resultOf(drawn, form))
		if err != nil {
			return fmt.Errorf("drawing.record(%s): %w", id, err)
		}
		outcome.Result = result
		return job.Finalize(ctx, tx, &outcome)
	})
	if err == nil {
		a.log.Info("draw completed", slog.String("from", string(campaign.Drawing)), slog.String("to", string(campaign.Completed)), slog.Int("winners", len(drawn.Winners)), telemetry.Took(outcome.Job.Took))
	}
	return outcome, err
}

// Result is the published outcome of a draw.
type Result struct {
	CampaignID uuid.UUID     `json:"campaign_id"`
	Trust      string        `json:"trust"`  // fairdraw.TrustOperator or TrustBeacon
	Root       string        `json:"root"`   // hex
	Secret     string        `json:"secret"` // hex
	Winners    []NamedWinner `json:"winners"`
	ExecutedAt time.Time     `json:"executed_at"`
}

// NamedWinner is the outcome of one prize, with what people call the position that has won it: a draw
// is stored without.
type NamedWinner struct {
	Winner
	Number *int    `json:"number"` // null as the column is
	Label  *string `json:"label"`
}

// get returns the result of a campaign's draw, or false when there is none yet.
func get(ctx context.Context, db postgres.DB, id uuid.UUID) (Result, bool, error) {
	drawn, ok, err := DrawOf(ctx, db, id)
	if err != nil || !ok {
		return Result{}, false, err
	}
	form, err := campaign.ShapeOf(ctx, db, id)
	return resultOf(drawn, form), err == nil, err
}

func resultOf(d Draw, form shape.Shape) Result {
	return Result{CampaignID: d.CampaignID, Trust: d.Trust, Root: d.Root.String(), Secret: d.Secret.String(), Winners: named(d.Winners, form), ExecutedAt: d.ExecutedAt}
}

func named(list []Winner, form shape.Shape) []NamedWinner {
	winners := make([]NamedWinner, len(list))
	for i, w := range list {
		winners[i].Winner = w
		if w.Column != nil {
			place := form.Place(shape.Position{Layer: w.Layer, Column: *w.Column})
			winners[i].Number, winners[i].Label = &place.Number, &place.Label
		}
	}
	return winners
}

// publish converts winners to their published form.
func publish(winners []fairdraw.Winner) []Winner {
	published := make([]Winner, 0, len(winners))
	for _, w := range winners {
		p := Winner{Prize: w.Prize.Number, Layer: w.Prize.Layer, Name: w.Prize.Name}
		if w.Line != nil {
			p.Column, p.PurchaseID = &w.Line.Column, &w.Line.PurchaseID
		}
		published = append(published, p)
	}
	return published
}

// SubmitRound stores the round that the freeze record of a campaign names, from anybody who has its
// signature: the next attempt draws with it. The Error is not-found; state-conflict when no round
// is awaited; or invalid-request when the signature is not that of the round. A round that is
// stored already is returned again.
func SubmitRound(ctx context.Context, db postgres.Pool, id uuid.UUID, signature []byte) (beacon.Round, error) {
	c, err := campaign.Get(ctx, db, id)
	if err != nil {
		return beacon.Round{}, err
	}
	frozen, ok, err := FreezeOf(ctx, db, id)
	switch {
	case err != nil:
		return beacon.Round{}, err
	case c.State == campaign.Cancelled:
		return beacon.Round{}, errCancelled
	case !ok:
		return beacon.Round{}, fault.New(fault.StateConflict, "the campaign is %s: its list is not frozen, so its draw waits for no round", c.State)
	case frozen.Round == nil:
		return beacon.Round{}, fault.New(fault.StateConflict, "the draw uses no round: its rules have no beacon")
	}
	plan, err := planOf(ctx, db, id)
	if err != nil {
		return beacon.Round{}, err
	}
	chain, number := plan.rules.Beacon.ChainHash, *frozen.Round
	round, err := plan.chain.Verify(number, signature)
	if errors.Is(err, beacon.ErrSignature) {
		return round, fault.Invalid(fault.Field{Pointer: "/signature", Detail: fmt.Sprintf("is not the signature of round %d of the chain %s", number, chain)})
	}
	if err != nil {
		return round, err
	}
	if _, known, err := roundWith(ctx, db, chain, number, round.Randomness[:]); err != nil || known {
		return round, err
	}
	return round, postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		drawing, err := campaign.LockDrawing(ctx, tx, id) // no void comes between
		if err != nil {
			return err
		}
		if drawing {
			return InsertRound(ctx, tx, chain, round)
		}
		if _, known, err := roundWith(ctx, tx, chain, number, round.Randomness[:]); err != nil || known { // it is drawn
			return err
		}
		return errCancelled
	})
}

var errCancelled = fault.New(fault.StateConflict, "the campaign is cancelled and will not be drawn")
