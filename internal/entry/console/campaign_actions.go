package console

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/money"
)

// campaignAction is a command about a campaign.
type campaignAction struct {
	name, done  string // in the addresses of its form, and of the page that follows
	in          string // the states in which the page of the campaign links to it; active: and not paused
	title, text string
	danger      bool // it cannot be undone: the campaign's name is typed
	facts       func(context.Context, *client.Client, client.Campaign) ([]fact, error)
	fields      []field
	do          func(context.Context, order) error
}

// order is a command as it is sent.
type order struct {
	api     *client.Client
	id      client.CampaignID
	typed   *form
	why     client.CampaignCancellation
	options []client.CallOption
}

var (
	chosen   = field{Name: "/positions", Label: "Positions", Hint: "layer/column or layer/first-last: 2/1-5, 3/4", Type: "textarea", Required: true}
	round    = field{Name: "/signature", Label: "Signature of the round", Hint: "48 bytes in lower-case hex, from any relay of the chain", Type: "text", Required: true}
	inPublic = field{Name: reason.Name, Label: "Reason", Hint: "for the trail, and public", Type: "text", Required: true}
)

var campaignActions = []campaignAction{
	{name: "publish", done: "published", in: "pending", title: "Publish", facts: rulesOf, fields: []field{reason},
		text: "The sale opens, and what stands here is fixed. Only the name, a higher limit and, without the policy draw, a later end can be changed then.",
		do: func(ctx context.Context, o order) error {
			return failed(o.api.PublishCampaign(ctx, o.id, o.options...))
		}},
	{name: "pause", done: "paused", in: "active", title: "Pause the sale", text: "No purchase is accepted until the sale is resumed.", fields: []field{reason},
		do: func(ctx context.Context, o order) error { return failed(o.api.PauseCampaign(ctx, o.id, o.options...)) }},
	{name: "resume", done: "resumed", in: "paused", title: "Resume the sale", text: "Purchases are accepted again.", fields: []field{reason},
		do: func(ctx context.Context, o order) error { return failed(o.api.ResumeCampaign(ctx, o.id, o.options...)) }},
	{name: "block", done: "blocked", in: "active paused", title: "Block positions", fields: []field{chosen, reason},
		text: "Free positions leave the sale and the draw until they are unblocked: all of these, or none. The campaign must have the policy draw.",
		do: func(ctx context.Context, o order) error {
			return failed(o.api.BlockPositions(ctx, o.id, client.PositionsBlock{Positions: o.typed.places(), Reason: o.why.Reason}, o.options...))
		}},
	{name: "unblock", done: "unblocked", in: "active paused", title: "Unblock positions", text: "Blocked positions are on sale again: all of these, or none.", fields: []field{chosen, reason},
		do: func(ctx context.Context, o order) error {
			return failed(o.api.UnblockPositions(ctx, o.id, client.PositionsUnblock{Positions: o.typed.places()}, o.options...))
		}},
	{name: "draw", done: "draw", in: "active paused drawing", title: "Request the draw", fields: []field{reason},
		text: "A campaign is drawn by itself when everything is sold, or when its sale ends with the policy draw. A request does no harm: if positions are left, nothing changes.",
		do: func(ctx context.Context, o order) error {
			return o.typed.follow(o.api.RequestDraw(ctx, o.id, o.options...))
		}},
	{name: "round", done: "round", in: "drawing", title: "Bring the round", facts: roundOf, fields: []field{round, reason},
		text: "If the relays of the beacon do not answer, its round can be brought by hand. A wrong signature changes nothing.",
		do: func(ctx context.Context, o order) error {
			return failed(o.api.SubmitDrawRound(ctx, o.id, client.DrawRoundSignature{Signature: o.typed.text(round.Name)}, o.options...))
		}},
	{name: "void", done: "voided", in: "drawing", title: "Void the draw", danger: true, facts: refundsOf, fields: []field{inPublic},
		text: "The campaign is cancelled and never drawn; every purchase is refunded. A draw must not be voided for its outcome: where that may be known, the void is announced seven days ahead.",
		do: func(ctx context.Context, o order) error {
			return o.typed.follow(o.api.VoidDraw(ctx, o.id, o.why, o.options...))
		}},
	{name: "cancel", done: "cancelled", in: "pending active paused", title: "Cancel the campaign", danger: true, facts: refundsOf, fields: []field{inPublic},
		text: "The sale stops, holds end, payments that are not captured are cancelled, and every purchase is refunded: to the wallet, to the card, or by the app that has collected the money.",
		do: func(ctx context.Context, o order) error {
			return o.typed.follow(o.api.CancelCampaign(ctx, o.id, o.why, o.options...))
		}},
}

func failed[T any](_ T, err error) error { return err }

// actionsOf returns links to what can be done with a campaign in its state, for its page.
func actionsOf(c client.Campaign) (links []action) {
	state := string(c.State)
	if c.Paused && c.State == client.CampaignStateActive {
		state = "paused"
	}
	for _, one := range append([]campaignAction{{name: "edit", in: "pending active paused", title: "Edit"}}, campaignActions...) {
		if strings.Contains(one.in, state) {
			links = append(links, action{Path: Path + "/campaigns/" + c.ID.String() + "/" + one.name, Title: one.title, Danger: one.danger})
		}
	}
	return links
}

// mountCampaignActions registers the commands about a campaign.
func (c *console) mountCampaignActions(r fiber.Router) {
	for _, one := range campaignActions {
		c.act(r, "/campaigns/:id/"+one.name, one.done, func(f *fiber.Ctx) (a action, do command, err error) {
			now, err := c.campaignOf(f)
			if err != nil {
				return a, nil, err
			}
			a = action{Path: f.Path(), Title: one.title, Text: one.text, Danger: one.danger, Fields: slices.Clone(one.fields), Back: Path + "/campaigns/" + now.ID.String(),
				Facts: []fact{{"Campaign", now.Name + " (" + string(now.State) + ")"}}}
			a.Fields[0].Value = f.Query(strings.TrimPrefix(a.Fields[0].Name, "/")) // the page of the campaign may know the positions
			if one.danger {
				a.Typed = strings.TrimSpace(now.Name)
			}
			if one.facts != nil {
				more, err := one.facts(context.Background(), c.api(f), now)
				if err != nil {
					return a, nil, err
				}
				a.Facts = append(a.Facts, more...)
			}
			return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
				soon := client.WithWait(2 * time.Second) // a job that fails at once is refused where it was typed
				return one.do(ctx, order{api, now.ID, typed, client.CampaignCancellation{Reason: typed.text(reason.Name)}, append(options, soon)})
			}, nil
		})
	}
}

// campaignOf reads the campaign that a path names.
func (c *console) campaignOf(f *fiber.Ctx) (client.Campaign, error) {
	id, err := uuid.Parse(f.Params("id"))
	if err != nil {
		return client.Campaign{}, &client.Error{Problem: client.Problem{Status: http.StatusNotFound, Code: client.CodeNotFound, Detail: "this is not the id of a campaign"}}
	}
	return c.api(f).GetCampaign(context.Background(), id) // the client has a timeout
}

var place = regexp.MustCompile(`^(\d{1,6})/(\d{1,6})(?:-(\d{1,6}))?$`)

// places reads positions such as 2/1-5, 3/4. What is not like that becomes a place without a position: the API refuses
// it, and all.
func (t *form) places() (places []client.PlaceDraft) {
	const tooMany = 1001
	t.parts = make(map[string][]string)
	for text := range strings.FieldsFuncSeq(t.text(chosen.Name), func(r rune) bool { return strings.ContainsRune(", \n", r) }) {
		m := append(place.FindStringSubmatch(text), "", "", "", "")
		layer, _ := strconv.Atoi(m[1])
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[3])
		if err != nil {
			last = first
		} else if last < first {
			layer, first, last = 0, 0, 0
		}
		for column := first; column <= last && len(places) < tooMany; column++ {
			places, t.parts[chosen.Name] = append(places, client.PlaceDraft{Layer: layer, Column: column}), append(t.parts[chosen.Name], text)
		}
	}
	return places
}

func format(amount int64, currency client.Currency) string {
	return money.Currency(currency).Format(money.Amount(amount))
}

// roundOf says which round of the beacon a draw waits for.
func roundOf(ctx context.Context, api *client.Client, c client.Campaign) ([]fact, error) {
	draw, err := api.GetDraw(ctx, c.ID)
	return []fact{{"Round of the beacon", fmt.Sprintf("%d, due %s (UTC)", draw.Round, utc(draw.RoundDueAt, "never"))}}, err
}

// refundsOf says what is refunded if a campaign ends now: in all, and by method, from its first thousand purchases.
func refundsOf(ctx context.Context, api *client.Client, c client.Campaign) ([]fact, error) {
	const pages, page = 5, 200
	var all client.Money
	for _, layer := range c.Layers {
		all += layer.Price * client.Money(layer.Positions.Sold)
	}
	facts := []fact{{"Refunded", fmt.Sprintf("%d positions, %s", c.Positions.Sold, format(all, c.Currency))}}
	purchases, amounts := make(map[client.PaymentMethod]int), make(map[client.PaymentMethod]client.Money)
	var list client.PurchaseList
	for n := 0; n == 0 || n < pages && list.NextCursor != ""; n++ {
		var err error
		if list, err = api.ListCampaignPurchases(ctx, c.ID, client.ListCampaignPurchasesParams{State: client.PurchaseStateCompleted, Cursor: list.NextCursor, Limit: page}); err != nil {
			return nil, err
		}
		for _, p := range list.Purchases {
			purchases[p.Payment.Method]++
			for _, position := range p.Positions { // without those of partial cancellations
				amounts[p.Payment.Method] += position.Price
			}
		}
	}
	atLeast := map[bool]string{true: "at least "}[list.NextCursor != ""]
	for _, method := range []client.PaymentMethod{client.PaymentMethodCard, client.PaymentMethodWallet, client.PaymentMethodExternal} {
		if n := purchases[method]; n > 0 {
			facts = append(facts, fact{"Paid by " + string(method), fmt.Sprintf("%s%d purchases, %s", atLeast, n, format(amounts[method], c.Currency))})
		}
	}
	return facts, nil
}
