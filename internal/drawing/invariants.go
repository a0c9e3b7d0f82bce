package drawing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/audit"
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

// drawRecords is what the tables say of one frozen campaign.
type drawRecords struct {
	id         uuid.UUID
	bound      campaign.Commitment
	commitment fairdraw.Hash
	rules      fairdraw.Rules
	chain      beacon.Chain // with a beacon in the rules
	frozen     Freeze
	draw       *Draw         // nil: not drawn yet
	round      *beacon.Round // nil: not stored
	sold       []fairdraw.SoldLine
}

// redo repeats one freeze and its draw, and returns what is wrong, or an empty text.
func redo(ctx context.Context, tx pgx.Tx, id uuid.UUID) (wrong string, err error) {
	e := drawRecords{id: id}
	for _, check := range []func(context.Context, pgx.Tx) (string, error){e.checkRules, e.checkList, e.checkSold, e.checkRecord, e.checkRounds, e.checkDraw} {
		if wrong, err := check(ctx, tx); err != nil || wrong != "" {
			return wrong, err
		}
	}
	return "", nil
}

// checkRules reads commitment, freeze and draw.
func (e *drawRecords) checkRules(ctx context.Context, tx pgx.Tx) (wrong string, err error) {
	var ok bool
	if e.bound, ok, err = campaign.CommitmentOf(ctx, tx, e.id); err != nil || !ok {
		return "it has no commitment", err
	}
	e.commitment = fairdraw.Hash(e.bound.Commitment)
	if err := json.Unmarshal(e.bound.Rules, &e.rules); err != nil {
		return "the rules cannot be read", nil //nolint:nilerr // that is the finding
	}
	if e.frozen, ok, err = FreezeOf(ctx, tx, e.id); err != nil || !ok {
		return "it is drawn and was never frozen", err
	}
	drawn, ok, err := DrawOf(ctx, tx, e.id)
	if err != nil {
		return "", err
	}
	if ok {
		e.draw = &drawn
	}
	if e.rules.Beacon == nil {
		return "", nil
	}
	if e.chain, ok, err = ChainOf(ctx, tx, e.rules.Beacon.ChainHash); err != nil {
		return "", err
	}
	if !ok || e.chain.Hash() != e.rules.Beacon.ChainHash || e.chain.PeriodS != e.rules.Beacon.PeriodS {
		return "the chain that its rules name is not stored as they name it", nil
	}
	return "", nil
}

// checkList compares the stored list with the frozen root and its subtrees.
func (e *drawRecords) checkList(ctx context.Context, tx pgx.Tx) (wrong string, err error) {
	var tree fairdraw.Tree
	for line, err := range ListOf(ctx, tx, e.id) {
		if err == nil {
			err = tree.Append(line)
		}
		if err != nil {
			return "", err
		}
		e.sold = append(e.sold, line)
	}
	if tree.Root() != e.frozen.Root || tree.Count() != e.frozen.Count {
		return "the stored list is not the one that was frozen", nil
	}
	stored, err := SubtreesOf(ctx, tx, e.id)
	if err != nil {
		return "", err
	}
	if !slices.Equal(stored, tree.Subtrees()) {
		return "its subtrees are not those of the stored list", nil
	}
	return "", nil
}

// checkSold compares the sold positions with the stored list. Those of a campaign that was
// cancelled since are given back.
func (e *drawRecords) checkSold(ctx context.Context, tx pgx.Tx) (wrong string, err error) {
	c, err := campaign.Get(ctx, tx, e.id)
	if err != nil || c.State == campaign.Cancelled {
		return "", err
	}
	const another = "the sold positions are not those of the stored list"
	rest := e.sold
	for line, err := range purchase.SoldLines(ctx, tx, e.id) {
		if err != nil {
			return "", err
		}
		if len(rest) == 0 || rest[0] != line {
			return another, nil
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return another, nil
	}
	return "", nil
}

// checkRecord compares the freeze record with what it is about.
func (e *drawRecords) checkRecord(context.Context, pgx.Tx) (wrong string, err error) {
	f := e.frozen
	if (f.Round != nil) != (e.rules.Beacon != nil) {
		return "its freeze and its rules do not agree on a beacon", nil
	}
	var record fairdraw.FreezeRecord
	if err := json.Unmarshal(f.Record, &record); err != nil {
		return "its freeze record cannot be read", nil //nolint:nilerr // that is the finding
	}
	want := fairdraw.FreezeRecord{Version: fairdraw.Version, CampaignID: e.id, Commitment: e.commitment, Root: f.Root, Count: f.Count,
		FrozenAt: fairdraw.At(f.FrozenAt), Round: f.Round}
	if f.Round != nil {
		want.Secret = record.Secret
	}
	text, err := want.Canonical()
	if err != nil {
		return "", err
	}
	if string(text) != string(f.Record) {
		return "its freeze record is not what it was frozen with", nil
	}
	if f.Round == nil {
		return "", nil
	}
	if record.Secret == nil || fairdraw.Hash(fairdraw.Commitment(e.id, e.bound.Rules, record.Secret[:])) != e.commitment {
		return "the secret in its freeze record is not the one committed to", nil
	}
	if now := e.chain.RoundAt(f.FrozenAt); *f.Round < now+fairdraw.RoundsAhead || *f.Round > now+fairdraw.MostRoundsAhead {
		return fmt.Sprintf("its round %d is not %d to %d rounds after %d, the newest at the freeze", *f.Round, fairdraw.RoundsAhead, fairdraw.MostRoundsAhead, now), nil
	}
	return "", nil
}

// checkRounds checks that what is stored of its round verifies.
func (e *drawRecords) checkRounds(ctx context.Context, tx pgx.Tx) (wrong string, err error) {
	if e.frozen.Round == nil {
		return "", nil
	}
	stored, err := RowsOf(ctx, tx, e.rules.Beacon.ChainHash, *e.frozen.Round)
	if err != nil {
		return "", err
	}
	for _, r := range stored {
		verified, err := e.chain.Verify(r.Number, r.Signature)
		if err != nil {
			return fmt.Sprintf("the signature of its round is not the chain's: round %d, signature %x", r.Number, r.Signature), nil //nolint:nilerr // that is the finding
		}
		e.round = &verified
	}
	return "", nil
}

// checkDraw repeats the selection.
func (e *drawRecords) checkDraw(ctx context.Context, tx pgx.Tx) (wrong string, err error) {
	if e.draw == nil {
		return "", nil
	}
	d := e.draw
	if fairdraw.Hash(fairdraw.Commitment(e.id, e.bound.Rules, d.Secret[:])) != e.commitment {
		return "the revealed secret is not the one committed to", nil
	}
	if d.Root != e.frozen.Root {
		return "it was drawn from another list than the frozen one", nil
	}
	if wrong := e.checkRandomness(); wrong != "" {
		return wrong, nil
	}
	winners := fairdraw.Select(e.rules.Prizes, e.sold, fairdraw.NewStream(fairdraw.Entropy(d.Secret[:], e.id, e.frozen.Root, d.Randomness)))
	return e.compare(ctx, tx, winners)
}

// checkRandomness checks that the draw has the randomness that its rules ask for.
func (e *drawRecords) checkRandomness() (wrong string) {
	if e.rules.Beacon == nil {
		if e.draw.Trust != fairdraw.TrustOperator || len(e.draw.Randomness) != 0 {
			return "it was drawn with randomness that its rules do not name"
		}
		return ""
	}
	if e.round == nil {
		return "its round is not stored"
	}
	if e.draw.Trust != fairdraw.TrustBeacon || string(e.draw.Randomness) != string(e.round.Randomness[:]) {
		return "it was not drawn with the randomness of its round"
	}
	return ""
}

// compare compares the published winners and the awarded prizes with the expected ones.
func (e *drawRecords) compare(ctx context.Context, tx pgx.Tx, winners []fairdraw.Winner) (wrong string, err error) {
	want := fairdraw.Positions(winners)
	var got []shape.Position
	for _, w := range e.draw.Winners {
		if w.Column != nil {
			got = append(got, shape.Position{Layer: w.Layer, Column: *w.Column})
		}
	}
	if len(e.draw.Winners) != len(winners) || !slices.Equal(got, want) {
		return "the published winners do not follow from the inputs", nil
	}
	rows, err := tx.Query(ctx, `SELECT layer, winning_column FROM prizes WHERE campaign_id = $1 AND winning_column IS NOT NULL ORDER BY number`, e.id)
	if err != nil {
		return "", err
	}
	awarded, err := pgx.CollectRows(rows, pgx.RowToStructByPos[shape.Position])
	if err != nil {
		return "", err
	}
	if !slices.Equal(awarded, want) {
		return "the prizes were not awarded as published", nil
	}
	return "", nil
}
