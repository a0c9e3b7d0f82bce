package campaign

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// Progress is the state of a campaign's sale at one moment.
type Progress struct {
	CampaignID uuid.UUID
	State      State
	Paused     bool
	Counts     Counts
	Board      int64         // the API's board_version: grows with every change of a position
	GivingBack *GivingBack   // of a cancelled campaign; see WithGivingBack
	Waiting    *Wait         // after the sale; nil: it waits for nothing
	Draw       *DrawProgress // of a campaign that is drawing; see WithDraw

	// Version is a short hash of the other fields. Equal fields give an equal
	// Version, in every process and at any time.
	Version string
}

// GivingBack is how far the cancellation of a campaign is, in purchases. A store cannot
// read it: it is what the job says that cancels the campaign.
type GivingBack struct {
	Total   int
	Done    int // given back, or listed for an app to do
	Waiting int // for an operator
	Over    bool
}

// DrawProgress is how far the draw of a campaign is. This store cannot read it: it is a draw record.
type DrawProgress struct {
	FreezeHash string // hex
	Round      *uint64
	RoundDueAt *time.Time
	VoidsAt    *time.Time
}

// WithDraw returns the progress with how far the draw is.
func (s Progress) WithDraw(d DrawProgress) Progress {
	s.Draw = &d
	s.Version = s.hash()
	return s
}

// WithGivingBack returns the progress with how far the cancellation is.
func (s Progress) WithGivingBack(g GivingBack) Progress {
	s.GivingBack = &g
	s.Version = s.hash()
	return s
}

// DrawVersion is a Version that changes with the state, the wait and the draw alone.
func (s Progress) DrawVersion() string {
	return Progress{CampaignID: s.CampaignID, State: s.State, Waiting: s.Waiting, Draw: s.Draw}.hash()
}

// Over reports whether nothing will change any more.
func (s Progress) Over() bool {
	return s.State == Completed || s.State == Cancelled && (s.GivingBack == nil || s.GivingBack.Over)
}

// ProgressOf returns the progress of a campaign that has been read.
func ProgressOf(c Campaign) Progress {
	s := Progress{CampaignID: c.ID, State: c.State, Paused: c.PausedAt != nil, Counts: c.Counts, Board: c.BoardVersion, Waiting: c.Waiting}
	s.Version = s.hash()
	return s
}

// ReadProgress reads campaigns without locks and leaves out those that do not
// exist. It has no counts per layer: they would mean counting all positions at
// every read, while this reads one row per campaign.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Progress, error) {
	found, err := GetAll(ctx, db, ids)
	list := make([]Progress, len(found))
	for i, c := range found {
		list[i] = ProgressOf(c)
	}
	return list, err
}

// hash returns 72 bits in 12 characters. The number at the front changes with the list of
// fields, so that two releases never give different fields the same hash.
func (s Progress) hash() string {
	text := fmt.Appendf(nil, "4 %s %s %t %d %d %d %d %d",
		s.CampaignID, s.State, s.Paused, s.Counts.Total, s.Counts.Reserved, s.Counts.Sold, s.Counts.Blocked, s.Board)
	if g := s.GivingBack; g != nil {
		text = fmt.Appendf(text, " %d %d %d %t", g.Total, g.Done, g.Waiting, g.Over)
	}
	if w := s.Waiting; w != nil {
		var until int64
		if w.Until != nil {
			until = w.Until.UnixMicro()
		}
		text = fmt.Appendf(text, " %s %d %q %d", w.Kind, w.Count, w.Reason, until)
	}
	if d := s.Draw; d != nil { // the round is in the record
		text = fmt.Appendf(text, " %s", d.FreezeHash)
		if d.VoidsAt != nil {
			text = fmt.Appendf(text, " %d", d.VoidsAt.UnixMicro())
		}
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
