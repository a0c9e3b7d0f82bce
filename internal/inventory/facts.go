package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

func (r HoldRequest) user() User {
	return User{CampaignID: r.Job.CampaignID, ID: r.Job.UserID}
}

// usage is what a user has in a campaign.
type usage struct {
	owned int  // positions: held, reserved and sold
	holds int  // active ones
	held  int  // positions in them
	late  bool // it gave positions back in this transaction: others choose first
}

// facts is what decisions on requests need, except the positions themselves. Holds
// that are over are not in any of its counts.
type facts struct {
	now       time.Time // by the database's clock
	turns     Turns
	campaigns map[uuid.UUID]*campaign.Status
	usages    map[User]*usage
	kept      map[User]HeldTimes  // lately
	held      map[uuid.UUID]int   // positions held in a campaign, by all users; only counted when their share is limited
	over      []Over              // in active campaigns
	holds     map[uuid.UUID]*Hold // that are to be extended or released, as they are when the others are over
}

// usersSQL is the FROM clause of the statements below: users, $1 uuid[] and $2 text[].
const usersSQL = ` FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id) `

// usageSQL counts per user; each count uses an index of its own.
const usageSQL = `
	SELECT u.campaign_id, u.user_id, p.n, h.n, h.size` + usersSQL + `
	CROSS JOIN LATERAL ` + CountsOfUser + ` p
	CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(sum(size), 0) AS size FROM holds
	                    WHERE campaign_id = u.campaign_id AND user_id = u.user_id AND state = 'active') h`

const heldSQL = `SELECT campaign_id, sum(size) FROM holds WHERE campaign_id = ANY($1) AND state = 'active' GROUP BY campaign_id`

func campaignsOf(requests []HoldRequest) (campaigns []uuid.UUID) {
	for _, r := range requests {
		if !slices.Contains(campaigns, r.Job.CampaignID) {
			campaigns = append(campaigns, r.Job.CampaignID)
		}
	}
	return campaigns
}

// readFacts reads the facts about requests for new holds, and about other holds, in statements after
// those of b. Behind that of a lock they see what was committed before it was granted.
func (s *Holds) readFacts(ctx context.Context, db postgres.DB, b *pgx.Batch, campaigns []uuid.UUID, requests []HoldRequest, holds []uuid.UUID) (*facts, error) {
	f := &facts{turns: TurnsOf(s.settings), campaigns: make(map[uuid.UUID]*campaign.Status), usages: make(map[User]*usage), kept: make(map[User]HeldTimes), held: make(map[uuid.UUID]int),
		holds: make(map[uuid.UUID]*Hold)}
	var users []User
	for _, r := range requests {
		if who := r.user(); f.usages[who] == nil {
			f.usages[who], f.kept[who] = &usage{}, make(HeldTimes)
			users = append(users, who)
		}
	}
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.now) })
	campaign.QueueStatuses(b, campaigns, f.campaigns)
	QueueFindOver(b, campaigns, &f.over)
	if len(holds) > 0 {
		QueueGetHolds(b, holds, func(h Hold) { f.holds[h.ID] = &h })
	}
	if len(requests) > 0 {
		f.queueUsages(b, campaigns, users, s.settings)
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	f.discountOver()
	if len(requests) > 0 {
		if err := s.facts.Fill(ctx, db, f.campaigns); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// queueUsages reads what users and campaigns have.
func (f *facts) queueUsages(b *pgx.Batch, campaigns []uuid.UUID, users []User, settings config.Holds) {
	if settings.MaxSharePercent < 100 { // the query adds up every hold of the campaign
		var id uuid.UUID
		var n int
		b.Queue(heldSQL, campaigns).Query(postgres.Each(func() { f.held[id] = n }, &id, &n))
	}
	var who User
	var has usage
	of, ids := ColumnsOf(users)
	b.Queue(usageSQL, of, ids).Query(postgres.Each(func() { *f.usages[who] = has }, &who.CampaignID, &who.ID, &has.owned, &has.holds, &has.held))
	QueueHeldTimes(b, f.turns, users, f.kept)
}

// discountOver takes holds that are over out of every count. Which holds are over was
// read once, for the whole transaction: one that expires a moment later still counts.
func (f *facts) discountOver() {
	f.over = slices.DeleteFunc(f.over, func(h Over) bool {
		c := f.campaigns[h.CampaignID]
		return c == nil || c.State != campaign.Active
	})
	for _, h := range f.over {
		f.end(h.CampaignID, h.UserID, h.Size)
		if named := f.holds[h.ID]; named != nil {
			named.State = HoldExpired
		}
	}
}

// end takes a hold of n positions out of every count.
func (f *facts) end(campaignID uuid.UUID, userID string, n int) {
	f.held[campaignID] -= n
	if u := f.usages[User{CampaignID: campaignID, ID: userID}]; u != nil {
		u.owned -= n
		u.holds--
		u.held -= n
		u.late = true
	}
}

// release takes a hold that its user gives back now out of every count.
func (f *facts) release(h *Hold) {
	f.end(h.CampaignID, h.UserID, len(h.Positions))
	if kept := f.kept[User{CampaignID: h.CampaignID, ID: h.UserID}]; kept != nil {
		lasted := max(f.now.Sub(h.CreatedAt), 0)
		for _, p := range h.Positions {
			kept.Add(p.Position, HeldTime{Held: lasted, EndedAt: f.now, Pause: lasted})
		}
	}
}

// check checks a request against everything but the positions themselves.
func (f *facts) check(r HoldRequest, settings config.Holds) error {
	if err := f.checkSale(r); err != nil {
		return err
	}
	return f.checkUsage(r, settings)
}

// checkSale checks a request against its campaign: first whether it is a draft, whose shape
// can still change, then whether it has such positions at all, then the state of the sale.
func (f *facts) checkSale(r HoldRequest) error {
	c := f.campaigns[r.Job.CampaignID]
	if c == nil {
		return campaign.NotFound(r.Job.CampaignID)
	}
	if c.State == campaign.Pending {
		return c.CheckOnSale()
	}
	if err := r.Check(c.Shape, ""); err != nil {
		return err
	}
	return c.CheckOnSale()
}

// checkUsage checks the limits on what one user, and all users together, may hold.
func (f *facts) checkUsage(r HoldRequest, settings config.Holds) error {
	c, u, n := f.campaigns[r.Job.CampaignID], f.usages[r.user()], r.Size()
	share := c.Counts.Total * settings.MaxSharePercent / 100
	switch {
	case u.holds >= settings.MaxPerUser:
		return fault.New(fault.HoldLimitExceeded, "this user has %d holds in this campaign; more are not allowed at a time", u.holds)
	case u.held+n > settings.MaxPositionsPerUser:
		return fault.New(fault.HoldLimitExceeded, "a user may hold %d positions at a time; this one holds %d and asks for %d more",
			settings.MaxPositionsPerUser, u.held, n)
	case settings.MaxSharePercent < 100 && f.held[c.ID]+n > share: // with 100 % there is no limit
		return fault.New(fault.HoldLimitExceeded, "%d of %d positions may be held at a time by all users together, and %d are",
			share, c.Counts.Total, f.held[c.ID])
	}
	if err := c.CheckLimit(u.owned, n); err != nil {
		return err
	}
	return f.quota(r).Refuse("", r.Positions, c.Shape, fmt.Sprintf("hold it for %s", r.TTL))
}

// hold counts a hold that was made.
func (f *facts) hold(r HoldRequest, n int) {
	u := f.usages[r.user()]
	u.owned += n
	u.holds++
	u.held += n
	f.held[r.Job.CampaignID] += n
}

// Turns returns how long one user keeps one position: as long as one hold that is
// extended as often as is allowed, in however many holds and unpaid reservations. After
// that it leaves the position to others for as long as a hold may last.
func TurnsOf(settings config.Holds) Turns {
	return Turns{Most: settings.MaxTTL * time.Duration(1+settings.MaxExtensions), Rest: settings.MaxTTL, CoolDown: settings.CoolDown}
}

// quota is how long the user of a request may hold which positions.
func (f *facts) quota(r HoldRequest) Quota {
	return Quota{Turns: f.turns, Kept: f.kept[r.user()], Now: f.now, For: r.TTL}
}

// millis is RFC 3339 with milliseconds.
const millisOf = "2006-01-02T15:04:05.000Z07:00"
