package drawrecord

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/platform/postgres"
)

// Progress is how far the draw of a campaign is, before its result.
type Progress struct {
	CampaignID uuid.UUID
	Record     []byte         // the freeze record, canonical JSON; nil: of no progress
	FreezeHash *fairdraw.Hash // of the record
	Round      *uint64        // of the beacon; nil: none, or not frozen yet
	RoundDueAt *time.Time
	VoidsAt    *time.Time // nil: no void is announced
}

// ReadProgress reads how far draws are, in one statement. It leaves out campaigns that are
// not frozen yet.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) (map[uuid.UUID]Progress, error) {
	list, err := postgres.Collect(ctx, db, scanProgress, `
		SELECT i.id, f.record, f.round, b.genesis_time, b.period_s, v.voids_at
		FROM unnest($1::uuid[]) AS i (id)
		JOIN commitments c ON c.campaign_id = i.id
		JOIN freezes f ON f.campaign_id = i.id
		LEFT JOIN draw_voids v ON v.campaign_id = i.id
		LEFT JOIN beacon_chains b ON f.round IS NOT NULL AND b.chain_hash = decode(c.rules::jsonb -> 'beacon' ->> 'chain_hash', 'hex')`, ids)
	if err != nil {
		return nil, fmt.Errorf("drawrecord.ReadProgress: %w", err)
	}
	known := make(map[uuid.UUID]Progress, len(list))
	for _, p := range list {
		known[p.CampaignID] = p
	}
	return known, nil
}

func scanProgress(row pgx.CollectableRow) (p Progress, err error) {
	var period *int
	var genesis *int64
	err = row.Scan(&p.CampaignID, &p.Record, &p.Round, &genesis, &period, &p.VoidsAt)
	if err != nil {
		return p, err
	}
	hash := fairdraw.FreezeHash(p.Record)
	p.FreezeHash = &hash
	if p.Round != nil && genesis != nil {
		due := beacon.Chain{GenesisTime: *genesis, PeriodS: *period}.DueAt(*p.Round).UTC()
		p.RoundDueAt = &due
	}
	return p, nil
}
