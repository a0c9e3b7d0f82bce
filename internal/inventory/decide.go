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
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

type usage struct {
	owned int // positions: held, reserved and sold
	holds int // active ones
	held  int // positions in them
}

// snapshot is what decisions on requests need, except the positions themselves. Holds
// that are over are not in any of its counts.
type snapshot struct {
	now       time.Time // by the database's clock
	quota     HoldQuota
	campaigns map[uuid.UUID]*campaign.Snapshot
	usages    map[User]*usage
	heldTimes map[User]HeldTimes  // lately
	over      []*Hold             // in active campaigns
	holds     map[uuid.UUID]*Hold // that are to be extended or released, as they are when the others are over
}

// usageSQL counts what users ($1 uuid[] and $2 text[]) have; each count uses an index of its own.
const usageSQL = `
	SELECT u.campaign_id, u.user_id, p.n, h.n, h.size FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id)
	CROSS JOIN LATERAL ` + CountsOfUser + ` p
	CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(sum(size), 0) AS size FROM holds
	                    WHERE campaign_id = u.campaign_id AND user_id = u.user_id AND state = 'active') h`

// readSnapshot reads what decisions on requests for new holds, and on other holds, need, in statements
// after those of b. Behind that of a lock they see what was committed before it was granted.
func (s *Holds) readSnapshot(ctx context.Context, db postgres.DB, b *pgx.Batch, campaigns []uuid.UUID, requests []HoldRequest, holds []uuid.UUID) (*snapshot, error) {
	f := &snapshot{quota: HoldQuotaOf(s.settings), campaigns: make(map[uuid.UUID]*campaign.Snapshot), usages: make(map[User]*usage), heldTimes: make(map[User]HeldTimes),
		holds: make(map[uuid.UUID]*Hold)}
	var users []User
	for _, r := range requests {
		if who := r.user(); f.usages[who] == nil {
			f.usages[who], f.heldTimes[who] = &usage{}, make(HeldTimes)
			users = append(users, who)
		}
	}
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.now) })
	campaign.QueueSnapshots(b, campaigns, f.campaigns)
	QueueFindOver(b, campaigns, &f.over)
	if len(holds) > 0 {
		QueueGetHolds(b, holds, func(h *Hold) { f.holds[h.ID] = h })
	}
	if len(requests) > 0 {
		var who User
		var has usage
		of, ids := columnsOf(users)
		b.Queue(usageSQL, of, ids).Query(postgres.Each(func() { *f.usages[who] = has }, &who.CampaignID, &who.ID, &has.owned, &has.holds, &has.held))
		QueueHeldTimes(b, f.quota, users, f.heldTimes)
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("inventory.readSnapshot: %w", err)
	}
	f.discountOver()
	if len(requests) > 0 {
		if err := s.terms.Fill(ctx, db, f.campaigns); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// discountOver takes holds that are over out of every count. Which holds are over was
// read once, for the whole transaction: one that expires a moment later still counts.
func (f *snapshot) discountOver() {
	f.over = slices.DeleteFunc(f.over, func(h *Hold) bool {
		c := f.campaigns[h.CampaignID]
		return c == nil || c.State != campaign.Active
	})
	for _, h := range f.over {
		f.end(h)
		if named := f.holds[h.ID]; named != nil {
			named.State = HoldExpired
		}
	}
}

func (f *snapshot) end(h *Hold) {
	if u := f.usages[User{CampaignID: h.CampaignID, ID: h.UserID}]; u != nil {
		u.owned -= len(h.Positions)
		u.holds--
		u.held -= len(h.Positions)
	}
}

func (f *snapshot) allowance(r HoldRequest) Allowance {
	return Allowance{HoldQuota: f.quota, HeldTimes: f.heldTimes[r.user()], Now: f.now, For: r.TTL}
}

func (r HoldRequest) user() User {
	return User{CampaignID: r.Job.CampaignID, ID: r.Job.UserID}
}

func (s *Holds) create(ctx context.Context, tx pgx.Tx, f *snapshot, out *effects, tasks []*task) error {
	wanted := make([]Request, len(tasks))
	for i, r := range tasks {
		wanted[i] = Request{CampaignID: r.Job.CampaignID, Selection: r.Selection}
		if c := f.campaigns[r.Job.CampaignID]; c != nil {
			wanted[i].Shape, wanted[i].Gone = c.Shape, c.Counts.Sold+c.Counts.Blocked
		}
		if r.Quantity > 0 {
			wanted[i].Avoid = f.allowance(r.HoldRequest).Avoided()
		}
	}
	stock, err := FindStock(ctx, tx, wanted)
	if err != nil {
		return err
	}
	out.named = stock.named
	for _, one := range tasks {
		made, err := s.decideOne(f, stock, one.HoldRequest)
		if err != nil {
			one.answer = job.Answer{Refusal: err}
			continue
		}
		out.made = append(out.made, made)
		one.answer = job.Answer{Body: s.render(made.Hold, one.Viewer)}
	}
	return nil
}

// decideOne makes a hold, or returns why the request is refused.
func (s *Holds) decideOne(f *snapshot, stock *Stock, r HoldRequest) (newHold, error) {
	c := f.campaigns[r.Job.CampaignID]
	if err := r.CheckSale(c, r.Job.CampaignID, ""); err != nil {
		return newHold{}, err
	}
	if err := f.checkUsage(r, s.settings); err != nil {
		return newHold{}, err
	}
	picked, err := stock.Select(c.ID, r.Selection, "", f.allowance(r).Avoid())
	if err != nil {
		return newHold{}, stock.NameOwn(err, c.ID, r.Job.Client, r.Job.UserID, r.Selection)
	}
	made := newHold{Picked: picked, Hold: Hold{ID: uuidv7.New(), CampaignID: c.ID, UserID: r.Job.UserID, Currency: c.Currency, Client: r.Job.Client,
		Metadata: r.Metadata, State: HoldActive, CreatedAt: f.now, ExpiresAt: f.now.Add(r.TTL), EndsBy: f.allowance(r).EndsBy(f.now, picked)}}
	for _, end := range []*time.Time{&made.ExpiresAt, &made.EndsBy} {
		if c.DrawsAt != nil && end.After(*c.DrawsAt) { // nothing is held when it is drawn
			*end = *c.DrawsAt
		}
	}
	stock.Reserve(picked, heldBy(made.Client, made.UserID, made.ID))
	for _, p := range picked {
		made.Positions = append(made.Positions, shape.Item{Seat: c.Shape.Seat(p.Position), Price: p.Price})
	}
	u := f.usages[r.user()]
	u.owned, u.holds, u.held = u.owned+len(picked), u.holds+1, u.held+len(picked)
	return made, nil
}

// checkUsage checks the limits on what a user may hold.
func (f *snapshot) checkUsage(r HoldRequest, settings config.Holds) error {
	c, u, n := f.campaigns[r.Job.CampaignID], f.usages[r.user()], r.Size()
	switch {
	case u.holds >= settings.MaxPerUser:
		return fault.New(fault.HoldLimitExceeded, "this user has %d holds in this campaign, which is the maximum", u.holds)
	case u.held+n > settings.MaxPositionsPerUser:
		return fault.New(fault.HoldLimitExceeded, "a user may hold %d positions at a time; this user holds %d and requests %d more",
			settings.MaxPositionsPerUser, u.held, n)
	}
	if err := c.CheckLimit(u.owned, n); err != nil {
		return err
	}
	return f.allowance(r).Refuse("", r.Positions, c.Shape, fmt.Sprintf("hold it for %s", r.TTL))
}

func (s *Holds) extend(f *snapshot, out *effects, r *task) job.Answer {
	h, err := f.active(r)
	if err != nil {
		return job.Answer{Refusal: err}
	}
	if h.Extensions >= maxExtensions {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "a hold can be extended once, and this one has been")}
	}
	deadline, bound := s.extended(f, h, r.TTL)
	if !deadline.After(h.ExpiresAt) {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "%s; this hold lasts until %s and cannot be extended further now", bound, h.ExpiresAt.UTC().Format(millis))}
	}
	h.ExpiresAt = deadline
	h.Extensions++
	out.extended = append(out.extended, h)
	return job.Answer{Body: s.render(*h, r.Viewer), Before: map[string]any{"client": h.Client}}
}

// extended returns until when a hold lasts when ttl is added, within the bounds, and the
// bound that leaves least.
func (s *Holds) extended(f *snapshot, h *Hold, ttl time.Duration) (deadline time.Time, bound string) {
	deadline = h.ExpiresAt.Add(ttl)
	within := func(end time.Time, why string) {
		if deadline.After(end) {
			deadline, bound = end, why
		}
	}
	within(f.now.Add(s.settings.MaxTTL), fmt.Sprintf("no hold has more than %s left", s.settings.MaxTTL))
	if end := f.campaigns[h.CampaignID].DrawsAt; end != nil {
		within(*end, "what is sold by "+end.UTC().Format(millis)+" is drawn: no hold outlasts that")
	}
	within(h.EndsBy, "this user has held these positions before: this hold can last until "+h.EndsBy.UTC().Format(millis))
	return deadline, bound
}

func (s *Holds) release(f *snapshot, out *effects, r *task) (released bool, err error) {
	h, err := f.active(r)
	if h != nil && h.State == HoldReleased {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.answer.Before = map[string]any{"state": HoldActive, "client": h.Client, "user_id": h.UserID}
	h.State = HoldReleased
	out.released = append(out.released, h)
	f.end(h)
	if times := f.heldTimes[User{CampaignID: h.CampaignID, ID: h.UserID}]; times != nil {
		lasted := max(f.now.Sub(h.CreatedAt), 0)
		for _, p := range h.Positions {
			times.add(p.Position, HeldTime{Held: lasted, EndedAt: f.now, Pause: lasted})
		}
	}
	return true, nil
}

// active returns a hold that is to be changed. A hold that is not active comes with the
// Error of CheckActive.
func (f *snapshot) active(r *task) (*Hold, error) {
	h := f.holds[r.hold]
	if h == nil || h.CampaignID != r.Job.CampaignID {
		return nil, fault.New(fault.NotFound, "there is no hold %s", r.hold)
	}
	return h, h.CheckActive()
}
