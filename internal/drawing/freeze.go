package drawing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
		a.secret, err = a.checkRecord(frozen) // with a round: no key is needed any more
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if a.rules.Beacon != nil {
		if err := a.confirmClock(ctx); err != nil {
			return err
		}
	}
	sold, tree, err := readList(purchase.SoldLines(ctx, a.db, a.ref.CampaignID))
	if err != nil {
		return fmt.Errorf("drawing.freeze(%s): %w", a.id, err)
	}
	a.sold = sold
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
	sold, now, err := campaign.SoldNow(ctx, tx, a.id)
	if err != nil {
		return f, err
	}
	if sold != tree.Count() {
		return f, fmt.Errorf("drawing.freeze(%s): %d positions are sold, its counter says %d", a.id, tree.Count(), sold)
	}
	f = Freeze{CampaignID: a.id, Root: tree.Root(), Count: tree.Count(), FrozenAt: fairdraw.At(now).Time}
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
			return f, snoozed(causeBeacon, "nothing is frozen yet: the clock is behind the beacon", now, clamp(soonest.Sub(now), firstRetry, longestRetry))
		case newest.Number+clockError < due:
			reason := fmt.Sprintf("nothing is frozen yet: by the clock round %d of the beacon is due, and its relays have none after %d", due, newest.Number)
			return f, snoozed(causeBeacon, reason, now, retry(a.execution.StartedAt, now))
		default:
			round := max(due, newest.Number) + fairdraw.RoundsAhead
			f.Round = &round
		}
	}
	f.Record, err = a.recordOf(f, a.secret)
	return f, err
}

// recordOf returns the canonical record of a freeze. It has the secret if there is a round.
func (p plan) recordOf(f Freeze, secret *fairdraw.Hash) ([]byte, error) {
	record := fairdraw.FreezeRecord{Version: fairdraw.Version, CampaignID: p.id, Commitment: p.commitment,
		Root: f.Root, Count: f.Count, FrozenAt: fairdraw.At(f.FrozenAt), Round: f.Round}
	if f.Round != nil {
		record.Secret = secret
	}
	return record.Canonical()
}

// checkRecord returns the secret that a freeze reveals, nil without a round, or an error when the
// stored record is not that of its columns and of these rules.
func (p plan) checkRecord(f Freeze) (*fairdraw.Hash, error) {
	if (f.Round != nil) != (p.rules.Beacon != nil) {
		return nil, fmt.Errorf("campaign %s: %w", p.id, contradiction("its freeze and its rules do not agree on a beacon"))
	}
	var stored fairdraw.FreezeRecord
	unreadable := json.Unmarshal(f.Record, &stored)
	record, err := p.recordOf(f, stored.Secret)
	if err != nil {
		return nil, err
	}
	if unreadable != nil || !bytes.Equal(record, f.Record) || (stored.Secret != nil) != (f.Round != nil) {
		return nil, fmt.Errorf("campaign %s: %w", p.id, contradiction("its freeze record is not what it was frozen with"))
	}
	if stored.Secret == nil {
		return nil, nil
	}
	return stored.Secret, p.check("the secret in its freeze record", stored.Secret[:])
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
	if err := a.check("its sealed secret", secret); err != nil {
		return err
	}
	opened := fairdraw.Hash(secret)
	a.secret = &opened
	return nil
}

// confirmClock asks for the newest round of the chain and stores it: newFreeze compares the clock
// with it. Until it is known nothing is frozen.
func (a *attempt) confirmClock(ctx context.Context) error {
	latest, err := a.ask(ctx, min(latestPatience, a.patience()), newestNumber)
	if err != nil {
		return a.unanswered(ctx, "nothing is frozen yet: the newest round of the beacon has to confirm the clock", a.execution.StartedAt, err)
	}
	a.latest = latest
	return a.storeRound(ctx, latest)
}

// checkEnd returns an error unless a list that is not of all positions is frozen after the
// end of the sale that the rules name: verifiers refuse any other. The sale was ended by
// the same clock, so what is too early is frozen when the clock has gone on.
func (a *attempt) checkEnd(f Freeze, now time.Time) error {
	positions := a.rules.Count()
	switch {
	case f.Count == positions:
		return nil
	case f.Count > positions || a.rules.Unsold == nil:
		return fmt.Errorf("drawing.freeze(%s): %d of %d positions are sold, and the rules want all of them", a.ref.CampaignID, f.Count, positions)
	case f.FrozenAt.Before(a.rules.Unsold.EndsAt.Time):
		return snoozed(causePostgres, "the clock is behind the end of the sale: nothing can be frozen yet", now, clamp(a.rules.Unsold.EndsAt.Sub(now), firstRetry, longestRetry))
	}
	return nil
}
