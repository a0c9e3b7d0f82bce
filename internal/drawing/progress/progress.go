// Package progress reads the progress of campaigns, and notifies the clients that follow them. It reads
// all followed campaigns in one query per interval, and never writes to Postgres.
package progress

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
)

// Progress is the state of a campaign's sale and draw at one moment.
type Progress struct {
	CampaignID uuid.UUID
	State      campaign.State
	Paused     bool
	Counts     campaign.Counts
	Board      int64             // the API's board_version: grows with every change of a position
	Refunds    *Refunds          // of a cancelled campaign
	Waiting    *campaign.Blocker // after the sale; nil: it waits for nothing
	Draw       *drawing.Progress // of a campaign that is drawing and frozen

	// Version is a short hash of the other fields. Equal fields give an equal
	// Version, in every process and at any time.
	Version string
}

// Refunds is how far the cancellation of a campaign is, by the job that cancels it.
type Refunds struct {
	job.Refunds
	Over bool // the job is final
}

// DrawVersion is a Version that changes with the state, the wait and the draw alone.
func (p Progress) DrawVersion() string {
	return Progress{CampaignID: p.CampaignID, State: p.State, Waiting: p.Waiting, Draw: p.Draw}.hash()
}

// Over reports whether nothing will change any more.
func (p Progress) Over() bool {
	return p.State == campaign.Completed || p.State == campaign.Cancelled && (p.Refunds == nil || p.Refunds.Over)
}

// Read reads the progress of campaigns without locks, and leaves out those that do not exist.
// It costs one query, one more when some are cancelled (for their refunds), and one more when
// some are drawing. There are no counts per layer: they would mean counting all positions at
// every read, while this reads one row per campaign.
func Read(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Progress, error) {
	found, err := campaign.GetAll(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	return Of(ctx, db, found...)
}

// Of is Read for campaigns that have been read.
func Of(ctx context.Context, db postgres.DB, found ...campaign.Campaign) (_ []Progress, err error) {
	var cancelled, inDraw []uuid.UUID
	for _, c := range found {
		switch c.State {
		case campaign.Cancelled:
			cancelled = append(cancelled, c.ID)
		case campaign.Drawing:
			inDraw = append(inDraw, c.ID)
		}
	}
	var jobs map[uuid.UUID]job.Job
	if len(cancelled) > 0 {
		if jobs, err = job.CampaignCancellations(ctx, db, cancelled); err != nil {
			return nil, fmt.Errorf("progress.Of: %w", err)
		}
	}
	var draws map[uuid.UUID]drawing.Progress
	if len(inDraw) > 0 {
		if draws, err = drawing.ReadProgress(ctx, db, inDraw); err != nil {
			return nil, fmt.Errorf("progress.Of: %w", err)
		}
	}
	list := make([]Progress, len(found))
	for i, c := range found {
		p := Progress{CampaignID: c.ID, State: c.State, Paused: c.PausedAt != nil, Counts: c.Counts, Board: c.BoardVersion, Waiting: c.Waiting}
		if j, known := jobs[c.ID]; known { // without its job it was refunded long ago
			p.Refunds = &Refunds{Over: j.State.Final()}
			if j.Progress != nil && j.Progress.Refunds != nil {
				p.Refunds.Refunds = *j.Progress.Refunds
			}
		}
		if d, frozen := draws[c.ID]; frozen {
			p.Draw = &d
		}
		p.Version = p.hash()
		list[i] = p
	}
	return list, nil
}

// hash returns 72 bits in 12 characters. The number at the front changes with the list of
// fields, so that two releases never give different fields the same hash.
func (p Progress) hash() string {
	text := fmt.Appendf(nil, "4 %s %s %t %d %d %d %d %d",
		p.CampaignID, p.State, p.Paused, p.Counts.Total, p.Counts.Reserved, p.Counts.Sold, p.Counts.Blocked, p.Board)
	if r := p.Refunds; r != nil {
		text = fmt.Appendf(text, " %d %d %d %t", r.Total, r.Done, r.Waiting, r.Over)
	}
	if w := p.Waiting; w != nil {
		var until int64
		if w.Until != nil {
			until = w.Until.UnixMicro()
		}
		text = fmt.Appendf(text, " %s %d %q %d", w.Kind, w.Count, w.Reason, until)
	}
	if d := p.Draw; d != nil { // the round is in the record
		text = fmt.Appendf(text, " %s", d.FreezeHash)
		if d.VoidsAt != nil {
			text = fmt.Appendf(text, " %d", d.VoidsAt.UnixMicro())
		}
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
