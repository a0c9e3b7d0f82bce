package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
)

// asker is a user who asks for holds in a campaign.
type asker struct {
	campaignID uuid.UUID
	userID     string
}

// standing is what an asker has already.
type standing struct {
	owned   int // positions: held, reserved and sold
	holds   int // active ones
	held    int // positions in them
	cooling map[triangle.Position]bool
}

// scene is everything that asks are decided on but the positions themselves.
type scene struct {
	now       time.Time // by the database's clock
	campaigns map[uuid.UUID]*campaign.Sale
	standings map[asker]*standing
	held      map[uuid.UUID]int // positions held in a campaign, by all; counted where only a share may be held
	due       []hold.Due        // of active campaigns; not counted above any more
}

// askersSQL is what the statements below begin with: the askers, $1 uuid[] and $2 text[].
const askersSQL = ` FROM unnest($1::uuid[], $2::text[]) AS u (campaign_id, user_id) `

// standingsSQL counts per asker, each through an index of its own.
const standingsSQL = `
	SELECT u.campaign_id, u.user_id, p.n, h.n, h.size` + askersSQL + `
	CROSS JOIN LATERAL (SELECT count(*) AS n FROM positions WHERE campaign_id = u.campaign_id AND user_id = u.user_id) p
	CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(sum(size), 0) AS size FROM holds
	                    WHERE campaign_id = u.campaign_id AND user_id = u.user_id AND state = 'active') h`

// coolingSQL lists the positions of holds that askers let expire within the last $3 seconds.
const coolingSQL = `
	SELECT u.campaign_id, u.user_id, (p ->> 'layer')::int, (p ->> 'column')::int` + askersSQL + `
	CROSS JOIN LATERAL (SELECT positions FROM holds
	                    WHERE campaign_id = u.campaign_id AND user_id = u.user_id
	                      AND expires_at > (SELECT clock_timestamp() - $3 * interval '1 second') AND expires_at <= (SELECT clock_timestamp())
	                      AND state IN ('expired', 'active')) h
	CROSS JOIN LATERAL jsonb_array_elements(h.positions) p`

const heldSQL = `SELECT campaign_id, sum(size) FROM holds WHERE campaign_id = ANY($1) AND state = 'active' GROUP BY campaign_id`

// survey reads the scene of asks. With lock it first locks their campaigns, in
// ascending order; the statements after it see what was committed before.
func survey(ctx context.Context, db postgres.DB, asks []Ask, settings config.Holds, lock bool) (*scene, error) {
	s := &scene{campaigns: make(map[uuid.UUID]*campaign.Sale), standings: make(map[asker]*standing), held: make(map[uuid.UUID]int)}
	var campaigns, ofUsers []uuid.UUID
	var users []string
	for _, a := range asks {
		if !slices.Contains(campaigns, a.Job.CampaignID) {
			campaigns = append(campaigns, a.Job.CampaignID)
		}
		if who := (asker{a.Job.CampaignID, a.Job.UserID}); s.standings[who] == nil {
			s.standings[who] = &standing{cooling: make(map[triangle.Position]bool)}
			ofUsers, users = append(ofUsers, who.campaignID), append(users, who.userID)
		}
	}
	var p pgx.Batch
	if lock {
		p.Queue(campaign.LockAllSQL, campaigns)
	}
	p.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&s.now) })
	p.Queue(campaign.SalesSQL, campaigns).Query(func(rows pgx.Rows) error {
		sales, err := pgx.CollectRows(rows, campaign.ScanSale)
		for _, c := range sales {
			s.campaigns[c.ID] = &c
		}
		return err
	})
	p.Queue(hold.DueSQL, campaigns).Query(func(rows pgx.Rows) (err error) {
		s.due, err = pgx.CollectRows(rows, hold.ScanDue)
		return err
	})
	if settings.MaxSharePercent < 100 { // it adds up every hold of the campaign
		p.Queue(heldSQL, campaigns).Query(s.scanHeld)
	}
	p.Queue(standingsSQL, ofUsers, users).Query(s.scanStandings)
	if settings.CoolDown > 0 {
		p.Queue(coolingSQL, ofUsers, users, settings.CoolDown.Seconds()).Query(s.scanCooling)
	}
	if err := db.SendBatch(ctx, &p).Close(); err != nil {
		return nil, fmt.Errorf("survey: %w", err)
	}
	s.forgetDue()
	return s, nil
}

func (s *scene) scanHeld(rows pgx.Rows) error {
	var id uuid.UUID
	var n int
	_, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		s.held[id] = n
		return nil
	})
	return err
}

func (s *scene) scanStandings(rows pgx.Rows) error {
	var who asker
	var owned, holds, held int
	_, err := pgx.ForEachRow(rows, []any{&who.campaignID, &who.userID, &owned, &holds, &held}, func() error {
		has := s.standings[who]
		has.owned, has.holds, has.held = owned, holds, held
		return nil
	})
	return err
}

func (s *scene) scanCooling(rows pgx.Rows) error {
	var who asker
	var at triangle.Position
	_, err := pgx.ForEachRow(rows, []any{&who.campaignID, &who.userID, &at.Layer, &at.Column}, func() error {
		s.standings[who].cooling[at] = true
		return nil
	})
	return err
}

// forgetDue takes holds that are over out of every count. What is due was read
// once: everything in this transaction goes by it, also what expires a moment later.
func (s *scene) forgetDue() {
	s.due = slices.DeleteFunc(s.due, func(d hold.Due) bool {
		c := s.campaigns[d.CampaignID]
		return c == nil || c.State != campaign.Active
	})
	for _, d := range s.due {
		s.held[d.CampaignID] -= d.Size
		if has := s.standings[asker{d.CampaignID, d.UserID}]; has != nil {
			has.owned -= d.Size
			has.holds--
			has.held -= d.Size
		}
	}
}

// admit checks an ask against everything but the positions themselves: what can
// never be, the state of the sale, and what the user may hold and have.
func (d *Desk) admit(s *scene, a Ask) error {
	c := s.campaigns[a.Job.CampaignID]
	if err := onSale(c, a); err != nil {
		return err
	}
	return d.withinLimits(s, c, a)
}

// onSale checks an ask against its campaign: what can never be, then the state of the sale.
func onSale(c *campaign.Sale, a Ask) error {
	switch {
	case c == nil:
		return fault.New(fault.NotFound, "there is no campaign %s", a.Job.CampaignID)
	case impossible(c, a) != nil:
		return impossible(c, a)
	}
	return c.OnSale()
}

// withinLimits is what keeps one user, or all together, from holding what others
// would buy.
func (d *Desk) withinLimits(s *scene, c *campaign.Sale, a Ask) error {
	has, n := s.standings[asker{a.Job.CampaignID, a.Job.UserID}], a.size()
	share := c.Counts.Total * d.settings.MaxSharePercent / 100
	switch {
	case has.holds >= d.settings.MaxPerUser:
		return fault.New(fault.HoldLimitExceeded, "this user has %d holds in this campaign; more are not allowed at a time", has.holds)
	case has.held+n > d.settings.MaxPositionsPerUser:
		return fault.New(fault.HoldLimitExceeded, "a user may hold %d positions at a time; this one holds %d and asks for %d more",
			d.settings.MaxPositionsPerUser, has.held, n)
	case d.settings.MaxSharePercent < 100 && s.held[c.ID]+n > share: // of a campaign that is all held, none is available
		return fault.New(fault.HoldLimitExceeded, "%d of %d positions may be held at a time by all users together, and %d are",
			share, c.Counts.Total, s.held[c.ID])
	case c.PurchaseLimit != nil && has.owned+n > *c.PurchaseLimit:
		return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and asks for %d more",
			*c.PurchaseLimit, has.owned, n)
	}
	for _, p := range a.Positions {
		if has.cooling[p] {
			return fault.New(fault.HoldLimitExceeded, "this user let a hold of position %d/%d expire less than %s ago", p.Layer, p.Column, d.settings.CoolDown)
		}
	}
	return nil
}

// impossible refuses what the campaign's triangle can never give.
func impossible(c *campaign.Sale, a Ask) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
	for i, p := range a.Positions {
		if !p.In(c.BaseLength) {
			return invalid(fmt.Sprintf("/positions/%d", i), "there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, c.BaseLength)
		}
	}
	switch {
	case a.Layer > c.BaseLength:
		return invalid("/layer", "the campaign has layers 1 to %d", c.BaseLength)
	case a.Layer > 0 && a.Quantity > triangle.InLayer(a.Layer):
		return invalid("/quantity", "layer %d has no more than %d in all", a.Layer, triangle.InLayer(a.Layer))
	case a.Quantity > c.Counts.Total:
		return invalid("/quantity", "the campaign has no more than %d in all", c.Counts.Total)
	}
	return nil
}
