package drawing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// Invariants are those of freezes and draws. One repeats every draw from its commitment, its frozen
// list and its round, and compares the winners and the awarded prizes. It also checks what is frozen
// and not drawn.
var Invariants = []audit.Invariant{
	{Check: "draws", Name: "a freeze and a draw can be redone from commitment, sold list and beacon", Redo: redo, SQL: `
		SELECT campaign_id::text FROM freezes UNION SELECT campaign_id::text FROM draws ORDER BY 1`},
	{Check: "drawn_twice", Name: "a draw awards each prize once, and each position one prize at most", SQL: `
		SELECT format('campaign %s: prize %s, position %s/%s', d.campaign_id, w.prize, w.layer, w."column")
		FROM draws d CROSS JOIN LATERAL (
			SELECT x.*, count(*) OVER (PARTITION BY prize) AS of_prize, count(*) OVER (PARTITION BY layer, "column") AS of_position
			FROM jsonb_to_recordset(d.winners) AS x (prize int, layer int, "column" int)) w
		WHERE w.of_prize > 1 OR w."column" IS NOT NULL AND w.of_position > 1`},
	{Check: "early_freezes", Name: "a list without all positions was frozen after the end of the sale that the rules name", SQL: `
		SELECT format('campaign %s: %s of %s frozen at %s, it is drawn at %s', c.id, f.sold, c.positions_total, f.frozen_at, c.draws_at)
		FROM freezes f JOIN campaigns c ON c.id = f.campaign_id
		WHERE f.sold <> c.positions_total AND NOT coalesce(f.frozen_at >= c.draws_at, false)`},
	{Check: "frozen_campaigns", Name: "a campaign is frozen only while it is drawing, when it is completed and when its draw is void, and has a draw when it is completed", SQL: `
		SELECT format('campaign %s is %s; freeze: %s, draw: %s', c.id, c.state, f.campaign_id IS NOT NULL, d.campaign_id IS NOT NULL)
		FROM campaigns c LEFT JOIN freezes f ON f.campaign_id = c.id LEFT JOIN draws d ON d.campaign_id = c.id
		WHERE f.campaign_id IS NOT NULL AND c.state NOT IN ('drawing', 'completed')
		  AND NOT (c.state = 'cancelled' AND c.draw_started_at + interval '24 hours' <= c.cancelled_at AND (f.round IS NULL
		           OR EXISTS (SELECT FROM draw_voids v WHERE v.campaign_id = c.id AND v.voids_at <= c.cancelled_at)))
		   OR f.campaign_id IS NULL AND c.state = 'completed'
		   OR (d.campaign_id IS NOT NULL) <> (c.state = 'completed')`},
	{Check: "draw_waits", Name: "only a draw under way waits for something", SQL: `
		SELECT format('campaign %s is %s, and its draw waits: %s', c.id, c.state, w.reason)
		FROM draw_waits w JOIN campaigns c ON c.id = w.campaign_id WHERE c.state <> 'drawing'`},
	{Check: "draw_secrets", Name: "a published campaign has its sealed secret", SQL: `
		SELECT format('campaign %s', c.campaign_id) FROM commitments c
		WHERE NOT EXISTS (SELECT FROM draw_secrets s WHERE s.campaign_id = c.campaign_id)`},
}

// redo repeats one freeze and its draw, and returns what is wrong, or an empty text.
func redo(ctx context.Context, tx pgx.Tx, id uuid.UUID) (wrong string, err error) {
	err = redraw(ctx, tx, id)
	if found, ok := errors.AsType[contradiction](err); ok {
		return string(found), nil
	}
	return "", err
}

func redraw(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	p, err := planOf(ctx, tx, id)
	if err != nil {
		return err
	}
	f, ok, err := FreezeOf(ctx, tx, id)
	if err != nil {
		return err
	}
	if !ok {
		return contradiction("it is drawn and was never frozen")
	}
	sold, tree, err := f.read(ctx, tx)
	if err != nil {
		return err
	}
	stored, err := SubtreesOf(ctx, tx, id)
	if err != nil {
		return err
	}
	if !slices.Equal(stored, tree.Subtrees()) {
		return contradiction("its subtrees are not those of the stored list")
	}
	if err := checkSold(ctx, tx, id, sold); err != nil {
		return err
	}
	if _, err := p.checkRecord(f); err != nil {
		return err
	}
	round, err := p.checkRound(ctx, tx, f)
	if err != nil {
		return err
	}
	d, isDrawn, err := DrawOf(ctx, tx, id)
	if err != nil || !isDrawn {
		return err
	}
	return p.checkDraw(ctx, tx, f, d, round, sold)
}

// checkSold compares the sold positions with the stored list. Those of a campaign that was
// cancelled since are given back.
func checkSold(ctx context.Context, tx pgx.Tx, id uuid.UUID, stored []fairdraw.SoldLine) error {
	c, err := campaign.Get(ctx, tx, id)
	if err != nil || c.State == campaign.Cancelled {
		return err
	}
	const another = contradiction("the sold positions are not those of the stored list")
	for line, err := range purchase.SoldLines(ctx, tx, id) {
		if err != nil {
			return err
		}
		if len(stored) > 0 && line.Holder == [32]byte{} { // its user is erased
			line.Holder = stored[0].Holder
		}
		if len(stored) == 0 || stored[0] != line {
			return another
		}
		stored = stored[1:]
	}
	if len(stored) > 0 {
		return another
	}
	return nil
}

// checkRound checks the number of the round of a freeze, and that all that is stored of it
// verifies. It returns the round; nil: it is not stored.
func (p plan) checkRound(ctx context.Context, tx pgx.Tx, f Freeze) (*beacon.Round, error) {
	if f.Round == nil {
		return nil, nil
	}
	if now := p.chain.RoundAt(f.FrozenAt); *f.Round < now+fairdraw.RoundsAhead || *f.Round > now+fairdraw.MostRoundsAhead {
		return nil, contradiction(fmt.Sprintf("its round %d is not %d to %d rounds after %d, the newest at the freeze", *f.Round, fairdraw.RoundsAhead, fairdraw.MostRoundsAhead, now))
	}
	stored, err := RowsOf(ctx, tx, p.rules.Beacon.ChainHash, *f.Round)
	if err != nil {
		return nil, err
	}
	var round *beacon.Round
	for _, r := range stored {
		verified, err := p.chain.Verify(r.Number, r.Signature)
		if err != nil {
			return nil, contradiction(fmt.Sprintf("the signature of its round is not the chain's: round %d, signature %x", r.Number, r.Signature))
		}
		round = &verified // a round has one signature
	}
	return round, nil
}

// checkDraw repeats the selection. It compares the winners, and the prizes that were awarded.
func (p plan) checkDraw(ctx context.Context, tx pgx.Tx, f Freeze, d Draw, round *beacon.Round, sold []fairdraw.SoldLine) error {
	if err := p.check("the revealed secret", d.Secret[:]); err != nil {
		return err
	}
	var randomness []byte
	if round != nil {
		randomness = round.Randomness[:]
	}
	switch {
	case d.Root != f.Root:
		return contradiction("it was drawn from another list than the frozen one")
	case f.Round != nil && round == nil:
		return contradiction("its round is not stored")
	case d.Trust != p.trust() || !bytes.Equal(d.Randomness, randomness):
		return contradiction("it was not drawn with the randomness of its round")
	case !reflect.DeepEqual(d.Winners, p.winners(d.Secret, d.Root, randomness, sold)):
		return contradiction("the published winners do not follow from the inputs")
	}
	awarded, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[shape.Position],
		`SELECT layer, winning_column FROM prizes WHERE campaign_id = $1 AND winning_column IS NOT NULL ORDER BY number`, p.id)
	if err != nil {
		return err
	}
	var won []shape.Position
	for _, w := range d.Winners {
		if w.Column != nil {
			won = append(won, shape.Position{Layer: w.Layer, Column: *w.Column})
		}
	}
	if !slices.Equal(awarded, won) {
		return contradiction("the prizes were not awarded as published")
	}
	return nil
}
