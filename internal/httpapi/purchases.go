package httpapi

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/apikey"
	"triprize/internal/fault"
	"triprize/internal/job"
	"triprize/internal/purchase"
	"triprize/internal/sale"
)

const (
	maxUserID    = 128
	maxReference = 255
)

// purchaseRequest is the body of POST /v1/campaigns/{id}/purchases.
type purchaseRequest struct {
	UserID    string `json:"user_id"`
	Selection struct {
		Layer    *int `json:"layer"`
		Quantity int  `json:"quantity"`
	} `json:"selection"`
	Payment struct {
		Method    string `json:"method"`
		Reference string `json:"reference"`
	} `json:"payment"`
}

func (r purchaseRequest) check(maxQuantity int) error {
	faults := text("/user_id", r.UserID, 1, maxUserID)
	if r.Selection.Layer != nil && *r.Selection.Layer < 1 {
		faults = append(faults, fault.Field{Pointer: "/selection/layer", Detail: "must be at least 1, or left out for the whole triangle"})
	}
	if r.Selection.Quantity < 1 || r.Selection.Quantity > maxQuantity {
		faults = append(faults, fault.Field{Pointer: "/selection/quantity", Detail: fmt.Sprintf("must be 1 to %d", maxQuantity)})
	}
	if r.Payment.Method != purchase.External {
		faults = append(faults, fault.Field{Pointer: "/payment/method", Detail: `must be "external": the app has collected the money`})
	}
	faults = append(faults, text("/payment/reference", r.Payment.Reference, 0, maxReference)...)
	if len(faults) > 0 {
		return fault.Invalid(faults...)
	}
	return nil
}

func (r purchaseRequest) order() sale.Order {
	o := sale.Order{UserID: r.UserID, Selection: sale.Selection{Quantity: r.Selection.Quantity},
		Payment: sale.Payment{Method: r.Payment.Method, Reference: r.Payment.Reference}}
	if r.Selection.Layer != nil {
		o.Selection.Layer = *r.Selection.Layer
	}
	return o
}

// requestPurchase accepts a purchase as a job.
func (s *Server) requestPurchase(c *fiber.Ctx, who apikey.Key) error {
	campaignID, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var body purchaseRequest
	canonical, err := decodeBody(c, &body)
	if err != nil {
		return err
	}
	if err := body.check(s.settings.Campaigns.MaxQuantity); err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.known.require(ctx, campaignID); err != nil {
		return err
	}
	payload, err := json.Marshal(body.order())
	if err != nil {
		return err
	}
	return s.accept(c, job.Request{ID: job.NewID(), Client: who.Client, Key: key, Hash: fingerprint(c, canonical),
		Kind: job.KindPurchase, CampaignID: campaignID, UserID: body.UserID, Payload: payload, Keep: s.settings.Retention.Purchases})
}

// purchaseDocument is a purchase as the contract shows it.
type purchaseDocument struct {
	ID         uuid.UUID       `json:"id"`
	CampaignID uuid.UUID       `json:"campaign_id"`
	UserID     string          `json:"user_id"`
	JobID      uuid.UUID       `json:"job_id"`
	State      purchase.State  `json:"state"`
	Failure    *fault.Code     `json:"failure"`
	Amount     int64           `json:"amount"`
	Currency   string          `json:"currency"`
	Items      []purchase.Item `json:"items"`
	Payment    paymentDocument `json:"payment"`
	Nonce      string          `json:"nonce"` // proves the owner's leaf in the published list
	Timeline   []timelineEntry `json:"timeline"`
}

type paymentDocument struct {
	Method    string  `json:"method"`
	Reference *string `json:"reference"`
}

type timelineEntry struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
}

func purchaseJSON(p purchase.Purchase) purchaseDocument {
	d := purchaseDocument{ID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID, JobID: p.JobID, State: p.State, Failure: p.Failure,
		Amount: p.Amount, Currency: p.Currency, Items: p.Items, Payment: paymentDocument{p.PaymentMethod, p.PaymentReference},
		Nonce: fmt.Sprintf("%x", p.Nonce), Timeline: []timelineEntry{{p.CreatedAt, "created"}}}
	if p.CompletedAt != nil {
		d.Timeline = append(d.Timeline, timelineEntry{*p.CompletedAt, "completed"})
	}
	return d
}

func (s *Server) getPurchase(c *fiber.Ctx, _ apikey.Key) error {
	id, err := pathID(c, "purchase")
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	p, err := purchase.Get(ctx, s.db, id)
	if err != nil {
		return err
	}
	return c.JSON(purchaseJSON(p))
}

func (s *Server) listPurchases(c *fiber.Ctx, _ apikey.Key) error {
	user := c.Params("user")
	if faults := text("user", user, 1, maxUserID); faults != nil {
		return fault.New(fault.NotFound, "there is no user with this id")
	}
	after, limit, err := page(c)
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	list, err := purchase.OfUser(ctx, s.db, user, after, limit)
	if err != nil {
		return err
	}
	documents := make([]purchaseDocument, len(list))
	for i, p := range list {
		documents[i] = purchaseJSON(p)
	}
	return c.JSON(fiber.Map{"purchases": documents,
		"next_cursor": nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })})
}
