package draw

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
)

// SubmitRound stores the round that the freeze record of a campaign names, from anybody who has its
// signature: the next attempt draws with it. The Error is not-found; state-conflict when no round
// is awaited; or invalid-request when the signature is not that of the round. A round that is
// stored already is returned again.
func SubmitRound(ctx context.Context, db postgres.Pool, id uuid.UUID, signature []byte) (beacon.Round, error) {
	c, err := campaign.Get(ctx, db, id)
	if err != nil {
		return beacon.Round{}, err
	}
	frozen, ok, err := drawrecord.FreezeOf(ctx, db, id)
	switch {
	case err != nil:
		return beacon.Round{}, err
	case c.State == campaign.Cancelled:
		return beacon.Round{}, errCancelled
	case !ok:
		return beacon.Round{}, fault.New(fault.StateConflict, "the campaign is %s: no list is frozen yet, so no round is awaited", c.State)
	case frozen.Round == nil:
		return beacon.Round{}, fault.New(fault.StateConflict, "the draw takes no round: its rules have no beacon")
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
	if _, known, err := drawrecord.RoundWith(ctx, db, chain, number, round.Randomness[:]); err != nil || known {
		return round, err
	}
	return round, postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		drawing, err := campaign.LockDrawing(ctx, tx, id) // no void comes between
		if err != nil {
			return err
		}
		if drawing {
			return drawrecord.KeepRound(ctx, tx, chain, round)
		}
		if _, known, err := drawrecord.RoundWith(ctx, tx, chain, number, round.Randomness[:]); err != nil || known { // it is drawn
			return err
		}
		return errCancelled
	})
}

var errCancelled = fault.New(fault.StateConflict, "the campaign is cancelled: nothing is drawn")
