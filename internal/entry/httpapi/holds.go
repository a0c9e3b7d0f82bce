package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/inventory"
	"triprize/internal/job"
)

func (s *server) CreateHold(ctx context.Context, r operations.CreateHoldRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	body := r.Body
	if err := c.MayAskFor(body.UserID, body.Metadata); err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	selection, err := s.selection(ctx, r.Campaign, inventory.Selection{Quantity: body.Quantity, Layer: body.Layer, Adjacent: body.Adjacent}, body.Positions, "", s.settings.Holds.MaxPositions)
	if err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindHoldCreate)
	request.CampaignID, request.UserID = r.Campaign, body.UserID
	done, err := s.holds.Create(ctx, inventory.HoldRequest{Job: request, TTL: ttl, Selection: selection,
		Metadata: metadata.Map(body.Metadata), Viewer: string(c.Role)})
	if err == nil {
		err = done.Err
	}
	return s.commandDone(ctx, done.Accepted, err)
}

// holdTTL returns how long a hold lasts: seconds, or the default for 0. It must be
// within the settings.
func (s *server) holdTTL(seconds int) (time.Duration, error) {
	const shortest = time.Second
	bounds := s.settings.Holds
	ttl := time.Duration(seconds) * time.Second
	if seconds == 0 {
		ttl = bounds.TTL
	}
	if ttl < shortest || ttl > bounds.MaxTTL {
		return 0, fault.Invalid(fault.Field{Pointer: "/ttl_seconds",
			Detail: fmt.Sprintf("must be %.0f to %.0f", shortest.Seconds(), bounds.MaxTTL.Seconds())})
	}
	return ttl, nil
}

func (s *server) GetHold(ctx context.Context, r operations.GetHoldRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	h, err := inventory.GetHold(ctx, s.db, who.Grant(), r.Hold)
	return operations.GetHold200(resource.Hold(h, who.Role), err)
}

func (s *server) ReleaseHold(ctx context.Context, r operations.ReleaseHoldRequestObject) (operations.Answer, error) {
	h, err := inventory.GetHold(ctx, s.db, call.Of(ctx).Grant(), r.Hold)
	if err != nil {
		return nil, err
	}
	_, err = s.holds.Release(ctx, h.CampaignID, r.Hold)
	return noContent, err
}

// noContent answers 204, without a body.
var noContent = csvSender(func(c *fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })

func (s *server) ExtendHold(ctx context.Context, r operations.ExtendHoldRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	h, err := inventory.GetHold(ctx, s.db, who.Grant(), r.Hold)
	if err != nil {
		return nil, err
	}
	ttl, err := s.holdTTL(r.Body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	request := s.command(ctx, job.KindHoldExtend)
	request.CampaignID, request.UserID = h.CampaignID, h.UserID
	done, err := s.holds.Extend(ctx, inventory.HoldRequest{Job: request, TTL: ttl, Viewer: string(who.Role)}, r.Hold)
	return s.commandDone(ctx, done, err)
}

func (s *server) ListHolds(ctx context.Context, r operations.ListHoldsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if err := s.requireCampaign(ctx, r.Params.CampaignID); err != nil {
		return nil, err
	}
	f := inventory.HoldFilter{Who: who.Grant(), CampaignID: r.Params.CampaignID, UserID: who.User, State: inventory.HoldState(response.ValueOf(r.Params.State))}
	return operations.ListHolds200(s.holdList(ctx, f, r.Params.Cursor, r.Params.Limit))
}

func (s *server) ListUserHolds(ctx context.Context, r operations.ListUserHoldsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if !who.MayActFor(r.User) {
		return nil, fault.New(fault.NotFound, "there is no user %s", r.User)
	}
	f := inventory.HoldFilter{Who: who.Grant(), UserID: r.User, State: inventory.HoldState(response.ValueOf(r.Params.State))}
	return operations.ListUserHolds200(s.holdList(ctx, f, r.Params.Cursor, r.Params.Limit))
}

func (s *server) holdList(ctx context.Context, f inventory.HoldFilter, cursor *contract.ListCursor, limit *int) (answer contract.HoldList, err error) {
	who := call.Of(ctx)
	page, err := response.ListPage(cursor, limit)
	if err != nil {
		return answer, err
	}
	list, next, err := inventory.ListHolds(ctx, s.db, f, page)
	if err != nil {
		return answer, err
	}
	return contract.HoldList{Holds: response.Documents(list, func(h inventory.Hold) contract.Hold { return resource.Hold(h, who.Role) }),
		NextCursor: response.ListCursor(next)}, nil
}

// selection adds the chosen positions to what a request wants of a campaign, in at most so many, or returns
// an invalid-request Error if the campaign can never give it: its key can then be used again, as no
// job is made of it. at is the JSON pointer of the selection. The contract has checked what goes
// with what; the sale checks what can change.
func (s *server) selection(ctx context.Context, id uuid.UUID, selection inventory.Selection, chosen []contract.PlaceDraft, at string, most int) (inventory.Selection, error) {
	if selection.Quantity > most {
		return selection, fault.Invalid(fault.Field{Pointer: at + "/quantity", Detail: fmt.Sprintf("must be at most %d", most)})
	}
	known, err := s.facts.Of(ctx, s.db, id)
	if err != nil || len(chosen) == 0 && selection.Quantity == 0 { // a hold has its positions already
		return selection, err
	}
	if selection.Positions, selection.Numbers, err = placesOf(chosen, at, known.Shape); err != nil {
		return selection, err
	}
	if err := selection.Check(known.Shape, at); err != nil {
		return selection, err
	}
	if known.CheckLimit(0, selection.Size()) == nil {
		return selection, nil
	}
	if known, err = s.facts.Read(ctx, s.db, id); err == nil && known.CheckLimit(0, selection.Size()) != nil { // the limit may have been raised
		pointer := "/quantity"
		if len(chosen) > 0 {
			pointer = "/positions"
		}
		err = fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf("the campaign allows %d positions per user", *known.PurchaseLimit)})
	}
	return selection, err
}

// placesOf returns the chosen positions, each once, and the numbers by which they were chosen, if
// any was; 0: by layer and column. An invalid-request Error names every one at fault.
func placesOf(chosen []contract.PlaceDraft, at string, form shape.Shape) (places []shape.Position, numbers []int, err error) {
	var wrong []fault.Field
	seen := make(map[shape.Position]bool, len(chosen))
	for i, p := range chosen {
		bad := func(pointer, detail string) {
			wrong = append(wrong, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d%s", at, i, pointer), Detail: detail})
		}
		place, ok := shape.Position{Layer: p.Layer, Column: p.Column}, true
		if p.Number > 0 {
			if place, ok = form.At(p.Number); numbers == nil {
				numbers = make([]int, len(chosen))
			}
			numbers[i] = p.Number
		}
		switch missing := inventory.Missing(form, place); {
		case (p.Number > 0) == (p.Layer > 0) || (p.Layer > 0) != (p.Column > 0):
			bad("", "must have layer and column, or number alone")
		case !ok:
			bad("/number", fmt.Sprintf("the campaign has positions 1 to %d", form.Count()))
		case missing != "":
			bad("", missing)
		case seen[place]:
			bad("", "position "+form.Name(place)+" was sent twice")
		default:
			seen[place] = true
			places = append(places, place)
		}
	}
	if len(wrong) > 0 {
		return nil, nil, fault.Invalid(wrong...)
	}
	return places, numbers, nil
}
