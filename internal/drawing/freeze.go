package drawing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/purchase"
)

// latestPatience bounds the question which round is the newest.
const latestPatience = 5 * time.Second

// clockError is how many rounds may lie between the newest verified round and the newest one that
// is due by the clock: a list is frozen only when the beacon confirms the clock.
const clockError = 10

// freeze computes and stores the freeze record, or reads the stored one. From its commit
// on it is public what is drawn, from what, and which round decides.
func (a *attempt) freeze(ctx context.Context) error {
	frozen, ok, err := FreezeOf(ctx, a.db, a.ref.CampaignID)
	if err != nil {
		return err
	}
	if ok {
		a.frozen = frozen
		return a.checkFrozen()
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if a.rules.Beacon != nil {
		if err := a.confirmClock(ctx); err != nil {
			return err
		}
	}
	tree, err := a.read(purchase.SoldLines(ctx, a.db, a.ref.CampaignID))
	if err != nil {
		return err
	}
	a.hit("draw.freeze")
	err = a.fenced(ctx, func(tx pgx.Tx) error {
		if a.frozen, err = a.newFreeze(ctx, tx, tree); err != nil {
			return err
		}
		return InsertFreeze(ctx, tx, a.frozen, a.sold, tree.Subtrees())
	})
	if err != nil {
		return err
	}
	a.hit("draw.frozen")
	said := []any{"positions", a.frozen.Count, "prizes", len(a.rules.Prizes)}
	if a.frozen.Round != nil {
		said = append(said, "round", *a.frozen.Round)
	}
	a.log.Info("draw list frozen", said...)
	return nil
}

// newFreeze is the freeze of a list at this moment of the database's clock. With a beacon there is
// none unless a round that has just been verified shows that the clock is right: with a clock that
// is behind, somebody could know the round that it chooses.
func (a *attempt) newFreeze(ctx context.Context, tx pgx.Tx, tree *fairdraw.Tree) (f Freeze, err error) {
	id := a.ref.CampaignID
	sold, now, drawing, err := campaign.SoldNow(ctx, tx, id)
	if err != nil {
		return f, err
	}
	if sold != tree.Count() {
		return f, fmt.Errorf("drawing.freeze(%s): %d positions are sold, its counter says %d", id, tree.Count(), sold)
	}
	f = Freeze{CampaignID: id, Root: tree.Root(), Count: tree.Count(), FrozenAt: fairdraw.At(now).Time}
	if err := a.checkEnd(f, now); err != nil {
		return f, err
	}
	if a.rules.Beacon != nil {
		newest, err := newestRound(ctx, tx, a.chain, a.latest)
		if err != nil {
			return f, err
		}
		switch due := a.chain.RoundAt(f.FrozenAt); {
		case newest.Number > due+clockError:
			soonest := a.chain.DueAt(newest.Number - clockError)
			return f, waiting(causeBeacon, "nothing is frozen yet: the clock is behind the beacon", now, clamp(soonest.Sub(now), firstRetry, longestRetry))
		case newest.Number+clockError < due:
			reason := fmt.Sprintf("nothing is frozen yet: by the clock round %d of the beacon is due, and its relays have none after %d", due, newest.Number)
			return f, waiting(causeBeacon, reason, now, clamp(drawing/2, firstRetry, longestRetry))
		default:
			round := max(due, newest.Number) + fairdraw.RoundsAhead
			f.Round = &round
		}
	}
	f.Record, err = a.recordOf(f)
	return f, err
}

// recordOf returns the canonical record of a freeze. It has the secret if there is a round.
func (a *attempt) recordOf(f Freeze) ([]byte, error) {
	record := fairdraw.FreezeRecord{Version: fairdraw.Version, CampaignID: f.CampaignID, Commitment: a.commitment,
		Root: f.Root, Count: f.Count, FrozenAt: fairdraw.At(f.FrozenAt), Round: f.Round}
	if f.Round != nil {
		record.Secret = a.secret
	}
	return record.Canonical()
}

// checkFrozen returns an error when the stored record is not one of this campaign's rules.
// With a round it takes the secret from the record: no key is needed any more.
func (a *attempt) checkFrozen() error {
	if (a.frozen.Round != nil) != (a.rules.Beacon != nil) {
		return fmt.Errorf("drawing.freeze(%s): the freeze record and the rules do not agree on a beacon", a.ref.CampaignID)
	}
	if a.frozen.Round != nil {
		var stored fairdraw.FreezeRecord
		if err := json.Unmarshal(a.frozen.Record, &stored); err != nil || stored.Secret == nil {
			return fmt.Errorf("drawing.freeze(%s): the freeze record has no secret (%v)", a.ref.CampaignID, err) //nolint:errorlint // nil is no error here
		}
		if err := a.check(a.ref.CampaignID, stored.Secret[:]); err != nil {
			return err
		}
		a.secret = stored.Secret
	}
	record, err := a.recordOf(a.frozen)
	if err != nil {
		return err
	}
	if !bytes.Equal(record, a.frozen.Record) {
		return fmt.Errorf("drawing.freeze(%s): the freeze record is not what its columns say", a.ref.CampaignID)
	}
	return nil
}

// open opens the sealed secret and compares it with the commitment.
func (a *attempt) open(ctx context.Context) error {
	if a.secret != nil {
		return nil
	}
	id := a.ref.CampaignID
	sealed, err := SecretOf(ctx, a.db, id)
	if err != nil {
		return err
	}
	secret, err := a.keys.Open(sealed, id[:])
	if err != nil {
		return fmt.Errorf("drawing.open(%s): %w", id, err)
	}
	if err := a.check(id, secret); err != nil {
		return err
	}
	opened := fairdraw.Hash(secret)
	a.secret = &opened
	return nil
}

// read reads the sold list and builds its tree.
func (a *attempt) read(list iter.Seq2[fairdraw.SoldLine, error]) (*fairdraw.Tree, error) {
	var tree fairdraw.Tree
	a.sold = make([]fairdraw.SoldLine, 0, listCapacity)
	for line, err := range list {
		if err == nil {
			err = tree.Append(line)
		}
		if err != nil {
			return nil, fmt.Errorf("drawing.read(%s): %w", a.ref.CampaignID, err)
		}
		a.sold = append(a.sold, line)
	}
	return &tree, nil
}

// listCapacity is how many sold positions a list has room for at first.
const listCapacity = 1024

// confirmClock asks for the newest round of the chain and stores it: newFreeze compares the clock
// with it. Until it is known nothing is frozen.
func (a *attempt) confirmClock(ctx context.Context) error {
	err := errNoBeacon
	if a.options.Beacon != nil {
		var latest beacon.Round
		err = a.questions.ask(ctx, a.rules.Beacon.ChainHash, min(latestPatience, a.patience()), func(ctx context.Context) (err error) {
			latest, err = a.options.Beacon.Latest(ctx, a.chain)
			return err
		})
		if err == nil {
			a.latest, err = latest, a.keepRound(ctx, latest)
		}
	}
	if err == nil || errors.Is(err, campaign.ErrFenced) || ctx.Err() != nil {
		return err
	}
	_, now, drawing, lost := campaign.SoldNow(ctx, a.db, a.ref.CampaignID)
	if lost != nil {
		return lost
	}
	a.log.Warn("the newest round of the beacon is not known: nothing is frozen yet", "error", err)
	after, reason := clamp(drawing/2, firstRetry, longestRetry), "no relay has sent the newest round of the beacon, which has to confirm the clock"
	if no, ok := errors.AsType[*notNow](err); ok {
		after, reason = no.after, no.reason
	}
	return waiting(causeBeacon, "nothing is frozen yet: "+reason, now, after)
}

// keepRound verifies a round once more and stores it. Nothing unverified is ever stored,
// from any source.
func (a *attempt) keepRound(ctx context.Context, r beacon.Round) error {
	verified, err := a.chain.Verify(r.Number, r.Signature)
	if err != nil {
		return err
	}
	return a.fenced(ctx, func(tx pgx.Tx) error { return InsertRound(ctx, tx, a.rules.Beacon.ChainHash, verified) })
}

// checkEnd returns an error unless a list that is not of all positions is frozen after the
// end of the sale that the rules name: verifiers refuse any other. The sale was ended by
// the same clock, so what is too early is frozen when the clock has gone on.
func (a *attempt) checkEnd(f Freeze, now time.Time) error {
	positions := 0
	for _, layer := range a.rules.Layers {
		positions += layer.Positions
	}
	switch {
	case f.Count == positions:
		return nil
	case f.Count > positions || a.rules.Unsold == nil:
		return fmt.Errorf("drawing.freeze(%s): %d of %d positions are sold, and the rules want all of them", a.ref.CampaignID, f.Count, positions)
	case f.FrozenAt.Before(a.rules.Unsold.EndsAt.Time):
		return waiting(causePostgres, "the clock is behind the end of the sale: nothing can be frozen yet", now, clamp(a.rules.Unsold.EndsAt.Sub(now), firstRetry, longestRetry))
	}
	return nil
}
