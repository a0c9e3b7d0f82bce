package draw

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/timestamp"
	"triprize/internal/store/drawrecord"
)

// errNoAuthority is why there are no tokens where no authority is configured.
var errNoAuthority = errors.New("this worker has no timestamp authority configured")

// timestamp gets the freeze record timestamped by the authorities that the rules name, until
// a while before the round is due. After that the draw goes on without those that have not
// answered.
func (a *attempt) timestamp(ctx context.Context) error {
	if a.frozen.Round == nil || len(a.rules.Witness) == 0 {
		return nil
	}
	now, err := drawrecord.Now(ctx, a.db)
	if err != nil {
		return err
	}
	due := a.chain.DueAt(*a.frozen.Round)
	last := due.Add(-a.options.Margin)
	if !now.Before(last) {
		return nil
	}
	missing, err := missingTokens(ctx, a.db, a.ref.CampaignID, a.rules.Witness)
	if err != nil || len(missing) == 0 {
		return err
	}
	silent := errNoAuthority
	if a.options.Stamper != nil {
		asking, cancel := a.questions.asking(ctx, min(last.Sub(now), a.patience()))
		var stamped []timestamp.Token
		stamped, silent = a.options.Stamper.Stamp(asking, fairdraw.FreezeHash(a.frozen.Record), slices.Clone(missing))
		cancel()
		if missing, err = a.keepTokens(ctx, missing, stamped); err != nil || len(missing) == 0 {
			return err
		}
	}
	a.log.Warn("the freeze record is not timestamped by all authorities yet", "missing", len(missing), "error", silent)
	if now, err = drawrecord.Now(ctx, a.db); err != nil || !now.Before(last) {
		return err
	}
	after := min(retry(a.frozen.FrozenAt, now), last.Sub(now))
	return waiting(causeWitness, fmt.Sprintf("%d of %d timestamps of the freeze record are missing yet", len(missing), len(a.rules.Witness)), now, after)
}

// keepTokens stores the tokens of missing authorities that were made in time, and returns
// the authorities that are still missing.
func (a *attempt) keepTokens(ctx context.Context, missing []fairdraw.Hash, stamped []timestamp.Token) ([]fairdraw.Hash, error) {
	due := a.chain.DueAt(*a.frozen.Round)
	var tokens []drawrecord.Token
	for _, t := range stamped {
		if !slices.Contains(missing, t.Authority) || !t.Before(due) {
			continue
		}
		tokens = append(tokens, drawrecord.Token{Authority: t.Authority, Token: t.DER, GenTime: t.GenTime})
		missing = slices.DeleteFunc(missing, func(h fairdraw.Hash) bool { return h == t.Authority })
	}
	if len(tokens) == 0 {
		return missing, nil
	}
	a.hit("draw.timestamp")
	if err := a.fenced(ctx, func(tx pgx.Tx) error { return drawrecord.InsertTokens(ctx, tx, a.ref.CampaignID, tokens) }); err != nil {
		return nil, err
	}
	a.hit("draw.timestamped")
	return missing, nil
}

// missingTokens returns the authorities that the rules name and that have no token.
func missingTokens(ctx context.Context, db postgres.DB, id uuid.UUID, named []fairdraw.Hash) ([]fairdraw.Hash, error) {
	if len(named) == 0 {
		return nil, nil
	}
	have, err := drawrecord.TokensOf(ctx, db, id)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(named), func(h fairdraw.Hash) bool {
		return slices.ContainsFunc(have, func(t drawrecord.Token) bool { return t.Authority == h })
	}), nil
}
