package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
)

// mountCampaigns registers the list of campaigns, and their pages. The commands have a file of their own.
func (c *console) mountCampaigns(r fiber.Router) {
	c.livePage(r, "/campaigns", "campaigns", "?state&cursor", "Campaigns", listCampaigns, func(f *fiber.Ctx, v *view) error {
		v.Data = f.Query("state")
		return nil
	})
	c.live(r, "/campaigns/:id/board", "board", "id?since", readBoard)
	c.livePage(r, "/campaigns/:id", "campaign", "id", "Campaign", readCampaign, func(f *fiber.Ctx, v *view) error {
		found, err := c.campaignOf(f)
		v.Title = found.Name
		return err
	})
}

func idOf(text, what string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fault.New(fault.NotFound, "%.100q is not the id of a %s", text, what)
	}
	return id, nil
}

// campaignList is what the list of campaigns shows.
type campaignList struct {
	client.CampaignPage
	Next string // the query of the next page; empty: this is the last one
}

func listCampaigns(ctx context.Context, api *client.Client, query string) (any, error) {
	asked, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return nil, err
	}
	params := client.ListCampaignsParams{State: client.CampaignState(asked.Get("state")), Limit: 50}
	if asked.Has("cursor") {
		if params.Cursor, err = idOf(asked.Get("cursor"), "page"); err != nil {
			return nil, err
		}
	}
	page, err := api.ListCampaigns(ctx, params)
	list := campaignList{CampaignPage: page}
	if page.NextCursor != uuid.Nil {
		asked.Set("cursor", page.NextCursor.String())
		list.Next = "?" + asked.Encode()
	}
	return list, err
}

// readBoard passes on the positions of a campaign, or what has changed on them, as the API encodes them.
func readBoard(ctx context.Context, _ *client.Client, argument string) (any, error) {
	text, query, _ := strings.Cut(argument, "?")
	id, err := idOf(text, "campaign")
	if err != nil {
		return nil, err
	}
	return raw(ctx, "/v1/campaigns/"+id.String()+"/positions?"+query)
}

const (
	shownRows    = 10 // of holds and of purchases
	shownWinners = 50
)

// campaignPage is what the page of a campaign shows.
type campaignPage struct {
	client.Campaign
	Layers    []layerRow
	Income    int64
	Commands  []action
	Steps     []drawStep
	Draw      client.Draw
	Winners   []client.Winner // the first ones
	Holds     client.HoldList
	Purchases client.PurchaseList
}

// layerRow is a layer with what it has brought in.
type layerRow struct {
	client.Layer
	Income int64
}

func readCampaign(ctx context.Context, api *client.Client, text string) (any, error) {
	id, err := idOf(text, "campaign")
	if err != nil {
		return nil, err
	}
	var p campaignPage
	if p.Campaign, err = api.GetCampaign(ctx, id); err != nil {
		return nil, err
	}
	if p.Draw, err = api.GetDraw(ctx, id); err != nil {
		return nil, err
	}
	if p.Holds, err = api.ListHolds(ctx, client.ListHoldsParams{CampaignID: id, State: client.HoldStateActive, Limit: shownRows}); err != nil {
		return nil, err
	}
	if p.Purchases, err = api.ListCampaignPurchases(ctx, id, client.ListCampaignPurchasesParams{Limit: shownRows}); err != nil {
		return nil, err
	}
	for _, l := range p.Campaign.Layers {
		row := layerRow{l, int64(l.Positions.Sold) * l.Price}
		p.Layers = append(p.Layers, row)
		p.Income += row.Income
	}
	p.Commands = actionsOf(p.Campaign)
	p.Winners = p.Draw.Winners[:min(len(p.Draw.Winners), shownWinners)]
	p.Steps, err = p.drawSteps(time.Now())
	return p, err
}

// drawStep is a step on the way to the winners.
type drawStep struct {
	Title string
	At    time.Time // when it was done, or will be; zero: not known
	Done  bool
	Now   bool   // it is the first that is not done
	Proof []fact // what was published in it
	Waits string // for what, while it is the next
	Until time.Time
	Do    string // what an operator can do about that
}

// drawSteps returns the steps of a draw, and says of the first that is not done what it waits for.
func (p campaignPage) drawSteps(now time.Time) ([]drawStep, error) {
	var frozen struct {
		At time.Time `json:"frozen_at"`
	}
	var commitment, list []fact
	if f := p.Draw.Freeze; f != nil {
		if err := json.Unmarshal(f.Record, &frozen); err != nil {
			return nil, fmt.Errorf("console: the freeze record of campaign %s: %w", p.ID, err)
		}
		list = []fact{{Name: "root of the list", Value: p.Draw.Root}, {Name: "hash of the freeze record", Value: f.Hash}}
	}
	if p.Commitment != "" {
		commitment = []fact{{Name: "commitment", Value: p.Commitment}}
	}
	isDrawn := !p.Draw.ExecutedAt.IsZero()
	first := drawStep{Title: "The commitment is published", At: p.PublishedAt, Done: p.Commitment != "", Proof: commitment,
		Waits: "The campaign is a draft.", Do: "Publish it. From then on shape, prices and prizes are fixed."}
	freeze := drawStep{Title: "The list of buyers is frozen", At: frozen.At, Done: p.Draw.Freeze != nil, Proof: list,
		Do: "Nothing, for a minute. Then see Now: without a worker nothing is drawn, and a beacon's relay has to confirm the clock."}
	steps := []drawStep{first, p.endOfSale(now), freeze}
	if p.Policies.Beacon {
		round := drawStep{Title: "The beacon's round is here", At: p.Draw.RoundDueAt, Done: isDrawn, Waits: "The round is not due yet."}
		if p.Draw.Round > 0 {
			round.Title = fmt.Sprintf("Round %d of the beacon is here", p.Draw.Round)
		}
		if !round.At.IsZero() && round.At.Before(now) {
			round.Waits = "The round is due."
			round.Do = "If no relay gives it within a minute: get it from any relay of the chain and bring it. 24 hours after it was due, the draw can be voided."
		}
		if !p.Draw.VoidsAt.IsZero() {
			round.Do = "The draw is voided at " + p.Draw.VoidsAt.UTC().Format(time.DateTime) + " UTC. Until then the round can still be brought."
		}
		steps = append(steps, round)
	}
	steps = append(steps, drawStep{Title: "The prizes are drawn", At: p.Draw.ExecutedAt, Done: isDrawn, Do: "Nothing, for a minute. Then see Now, or request the draw: it is safe at any time."})
	for i := range steps {
		step := &steps[i]
		if step.Done {
			continue
		}
		step.Now = p.State != client.CampaignStateCancelled
		if w := cmp.Or(p.Waiting, p.Draw.Waiting); w != nil {
			step.Waits, step.Until = w.Reason, w.Until
		}
		break
	}
	return steps, nil
}

// endOfSale is the step that the policy for unsold positions decides.
func (p campaignPage) endOfSale(now time.Time) drawStep {
	left := p.Positions.Total - p.Positions.Sold - p.Positions.Blocked
	s := drawStep{Title: "Everything is sold, or the sale has ended", At: p.DrawStartedAt, Done: !p.DrawStartedAt.IsZero(), Waits: fmt.Sprintf("%d positions are not sold.", left)}
	isOver := !p.SaleEndsAt.IsZero() && p.SaleEndsAt.Before(now)
	switch {
	case s.Done:
	case p.Paused:
		s.Do = "Resume the sale."
	case p.Policies.Unsold == "draw":
		s.Until, s.Do = p.DrawsAt, "Nothing: what is sold then is drawn."
	case p.Policies.Unsold == "cancel":
		s.Until, s.Do = p.SaleEndsAt, "Nothing: if positions are left then, the campaign is cancelled and its buyers get their money back."
	case isOver:
		s.Do = "The sale has ended, so these positions stay. Let the sale go on longer, or cancel the campaign."
	}
	return s
}
