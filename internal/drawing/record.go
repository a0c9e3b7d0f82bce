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
	"triprize/internal/trail"
)

// contradiction says how records of a draw contradict each other.
type contradiction string

// Error returns the sentence.
func (c contradiction) Error() string { return "drawing: " + string(c) }

// plan is what a campaign has bound its draw to.
type plan struct {
	id         uuid.UUID
	text       []byte // the rules, canonical JSON
	rules      fairdraw.Rules
	commitment fairdraw.Hash
	chain      beacon.Chain // that the rules name, if they name one
}

// planOf returns the plan of a published campaign.
func planOf(ctx context.Context, db postgres.DB, id uuid.UUID) (plan, error) {
	p, ok, err := findPlan(ctx, db, id)
	if err == nil && !ok {
		err = fmt.Errorf("campaign %s: %w", id, contradiction("it has no commitment"))
	}
	return p, err
}

// findPlan returns the plan of a campaign, or false before its publication.
func findPlan(ctx context.Context, db postgres.DB, id uuid.UUID) (p plan, ok bool, err error) {
	bound, ok, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil || !ok {
		return p, false, err
	}
	p.id, p.text, p.commitment = id, bound.Rules, fairdraw.Hash(bound.Commitment)
	if json.Unmarshal(bound.Rules, &p.rules) != nil {
		return p, false, fmt.Errorf("campaign %s: %w", id, contradiction("its rules cannot be read"))
	}
	if p.rules.Beacon == nil {
		return p, true, nil
	}
	p.chain, ok, err = ChainOf(ctx, db, p.rules.Beacon.ChainHash)
	if err == nil && (!ok || p.chain.Hash() != p.rules.Beacon.ChainHash || p.chain.PeriodS != p.rules.Beacon.PeriodS) {
		err = fmt.Errorf("campaign %s: %w", id, contradiction("the chain that its rules name is not stored as they name it"))
	}
	return p, err == nil, err
}

// trust is the level of trust that the rules promise.
func (p plan) trust() string {
	if p.rules.Beacon != nil {
		return fairdraw.TrustBeacon
	}
	return fairdraw.TrustOperator
}

// check returns an error when a secret, which the text names, is not the one committed to.
func (p plan) check(named string, secret []byte) error {
	if fairdraw.Hash(fairdraw.Commitment(p.id, p.text, secret)) != p.commitment {
		return fmt.Errorf("campaign %s: %w", p.id, contradiction(named+" is not the one committed to"))
	}
	return nil
}

// winners selects the winners from a secret, the frozen list and the randomness, and from
// nothing else.
func (p plan) winners(secret, root fairdraw.Hash, randomness []byte, sold []fairdraw.SoldLine) []fairdraw.ProofWinner {
	entropy := fairdraw.Entropy(secret[:], p.id, root, randomness)
	return fairdraw.Select(p.rules.Prizes, sold, fairdraw.NewStream(entropy))
}

// choose selects the winners. The list must still be the frozen one. It writes nothing.
func (a *attempt) choose(ctx context.Context, randomness []byte) ([]fairdraw.ProofWinner, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	if a.sold == nil {
		var err error
		if a.sold, _, err = a.frozen.read(ctx, a.db); err != nil {
			return nil, err
		}
	}
	return a.winners(*a.secret, a.frozen.Root, randomness, a.sold), nil
}

// record writes the draw in one transaction. Its first statement is the fence: it
// fails when the lock or its version is no longer ours, and nothing is written.
func (a *attempt) record(ctx context.Context, randomness []byte, winners []fairdraw.ProofWinner) (job.Outcome, error) {
	id := a.ref.CampaignID
	drawn := Draw{CampaignID: id, Trust: a.trust(), Root: a.frozen.Root, Secret: *a.secret, Randomness: randomness,
		Winners: winners, Version: a.execution.Version}
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
		return job.Complete(ctx, tx, &outcome)
	})
	if err == nil {
		a.log.Info("draw completed", slog.String("from", string(campaign.Drawing)), slog.String("to", string(campaign.Completed)), slog.Int("winners", len(drawn.Winners)), telemetry.Took(outcome.Took))
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
// is stored without. What follows from the position is nil if the layer had no candidate left.
type NamedWinner struct {
	Prize      int        `json:"prize"` // its number
	Layer      int        `json:"layer"`
	Column     *int       `json:"column"`
	PurchaseID *uuid.UUID `json:"purchase_id"`
	Name       string     `json:"name"`
	Number     *int       `json:"number"`
	Label      *string    `json:"label"`
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

func named(list []fairdraw.ProofWinner, form shape.Shape) []NamedWinner {
	winners := make([]NamedWinner, len(list))
	for i, w := range list {
		winners[i] = NamedWinner{Prize: w.Prize, Layer: w.Layer, Column: w.Column, PurchaseID: w.PurchaseID, Name: w.Name}
		if w.Column != nil {
			seat := form.Seat(shape.Position{Layer: w.Layer, Column: *w.Column})
			winners[i].Number, winners[i].Label = &seat.Number, &seat.Label
		}
	}
	return winners
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
		if _, known, err := roundWith(ctx, tx, chain, number, round.Randomness[:]); err != nil || known { // it is drawn, or about to be
			return err
		}
		if !drawing {
			return errCancelled
		}
		if err := InsertRound(ctx, tx, chain, round); err != nil {
			return err
		}
		return trail.Write(ctx, tx, nil, map[string]any{"round": number})
	})
}

var errCancelled = fault.New(fault.StateConflict, "the campaign is cancelled and will not be drawn")
