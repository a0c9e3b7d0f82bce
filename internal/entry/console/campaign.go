package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
)

const (
	shownRows    = 10 // of holds and of purchases
	shownWinners = 50
)

// campaignPage is what the page of a campaign shows.
type campaignPage struct {
	client.Campaign
	Commands  []action
	Steps     []drawStep
	Draw      client.Draw
	Ending    *client.Job     // its cancellation, or the void of its draw; nil: none
	Winners   []client.Winner // the first ones
	Holds     client.HoldList
	Purchases client.PurchaseList
	Dispute   client.DisputeFilter // of the purchases; empty: all
}

// title is that of the page.
func (p campaignPage) title() string { return p.Name }

// Income is what its sold positions have brought in.
func (p campaignPage) Income() client.Money { return incomeOf(p.Layers...) }

func incomeOf(layers ...client.Layer) (sum client.Money) {
	for _, layer := range layers {
		sum += client.Money(layer.Positions.Sold) * layer.Price
	}
	return sum
}

func readCampaign(ctx context.Context, api *client.Client, id uuid.UUID, query url.Values) (any, error) {
	p := campaignPage{Dispute: client.DisputeFilter(query.Get("dispute"))}
	var errs [5]error
	p.Campaign, errs[0] = api.GetCampaign(ctx, id)
	p.Draw, errs[1] = api.GetDraw(ctx, id)
	p.Holds, errs[2] = api.ListHolds(ctx, client.ListHoldsParams{CampaignID: id, State: client.HoldStateActive, Limit: shownRows})
	p.Purchases, errs[3] = api.ListCampaignPurchases(ctx, id, client.ListCampaignPurchasesParams{Dispute: p.Dispute, Cursor: query.Get("cursor"), Limit: shownRows})
	if p.State == client.CampaignStateCancelled || !p.Draw.VoidsAt.IsZero() {
		var ends client.JobList
		if ends, errs[4] = api.ListJobs(ctx, client.ListJobsParams{CampaignID: id, Kind: "campaign-cancellation", Limit: 1}); len(ends.Jobs) > 0 {
			p.Ending = &ends.Jobs[0]
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	p.Commands = actionsOf(p.Campaign)
	p.Winners = p.Draw.Winners[:min(len(p.Draw.Winners), shownWinners)]
	p.Steps = p.drawSteps(time.Now())
	return p, nil
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
func (p campaignPage) drawSteps(now time.Time) []drawStep {
	var list []fact
	if f := p.Draw.Freeze; f != nil {
		list = []fact{{Name: "root of the list", Value: p.Draw.Root}, {Name: "hash of the freeze record", Value: f.Hash}}
	}
	isDrawn := !p.Draw.ExecutedAt.IsZero()
	first := drawStep{Title: "The commitment is published", At: p.PublishedAt, Done: p.Commitment != "", Proof: []fact{{Name: "commitment", Value: p.Commitment}},
		Waits: "The campaign is a draft.", Do: "Publish it. From then on shape, prices and prizes are fixed."}
	freeze := drawStep{Title: "The list of buyers is frozen", Done: p.Draw.Freeze != nil, Proof: list,
		Do: "It takes less than a minute. If it takes longer, see on Now whether a worker runs, and with the right draw key."}
	steps := []drawStep{first, p.endOfSale(now), freeze}
	if p.Policies.Beacon {
		steps[2].Do += " A relay of the beacon must answer, too."
		round := drawStep{Title: "The beacon's round is here", At: p.Draw.RoundDueAt, Done: isDrawn, Waits: "The round is not due yet."}
		if p.Draw.Round > 0 {
			round.Title = fmt.Sprintf("Round %d of the beacon is here", p.Draw.Round)
		}
		if !round.At.IsZero() && round.At.Before(now) {
			round.Waits = "The round is due."
			round.Do = "If no relay gives it within a minute: get it from any relay of the chain and submit it. 24 hours after it was due, the void of the draw can be announced."
		}
		if !p.Draw.VoidsAt.IsZero() {
			round.Do = "The draw is voided at " + p.Draw.VoidsAt.UTC().Format(time.DateTime) + " UTC. Until then the round can still be submitted."
		}
		steps = append(steps, round)
	}
	steps = append(steps, drawStep{Title: "The prizes are drawn", At: p.Draw.ExecutedAt, Done: isDrawn, Do: "It takes less than a minute. If it takes longer, see Now, or request the draw: it is safe at any time."})
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
	return steps
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
