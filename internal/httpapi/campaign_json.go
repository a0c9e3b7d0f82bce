package httpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"triprize/internal/board"
	"triprize/internal/campaign"
	"triprize/internal/fault"
	"triprize/internal/money"
	"triprize/internal/postgres"
	"triprize/internal/triangle"
)

// optional tells a field that is left out from one that is null.
type optional[T any] struct {
	set   bool
	value *T
}

// UnmarshalJSON implements json.Unmarshaler; it is called for null too.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.set = true
	return json.Unmarshal(data, &o.value)
}

// campaignRequest is the body of POST and PATCH; what is left out stays as it is.
type campaignRequest struct {
	Name          optional[string]         `json:"name"`
	BaseLength    optional[int]            `json:"base_length"`
	Currency      optional[string]         `json:"currency"`
	Layers        optional[[]layerRequest] `json:"layers"`
	PurchaseLimit optional[int]            `json:"purchase_limit"`
	SaleStartsAt  optional[time.Time]      `json:"sale_starts_at"`
	SaleEndsAt    optional[time.Time]      `json:"sale_ends_at"`
	Policies      optional[policyRequest]  `json:"policies"`
}

type layerRequest struct {
	Layer  int            `json:"layer"`
	Price  int64          `json:"price"`
	Prizes []prizeRequest `json:"prizes"`
}

type prizeRequest struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

type policyRequest struct {
	LatePayment       *string    `json:"late_payment"`
	Unsold            *string    `json:"unsold"`
	CancellationUntil *time.Time `json:"cancellation_until"`
	Beacon            *bool      `json:"beacon"`
}

var defaultPolicies = campaign.Policies{LatePayment: campaign.LatePaymentRefund, Unsold: campaign.UnsoldStay}

// onto lays the request over a draft.
func (r campaignRequest) onto(d campaign.Draft) campaign.Draft {
	lay(r.Name, &d.Name)
	lay(r.BaseLength, &d.BaseLength)
	var currency = string(d.Currency)
	lay(r.Currency, &currency)
	d.Currency = money.Currency(currency)
	if r.PurchaseLimit.set {
		d.PurchaseLimit = r.PurchaseLimit.value
	}
	if r.SaleStartsAt.set {
		d.SaleStartsAt = r.SaleStartsAt.value
	}
	if r.SaleEndsAt.set {
		d.SaleEndsAt = r.SaleEndsAt.value
	}
	if r.Policies.set {
		d.Policies = defaultPolicies
		if p := r.Policies.value; p != nil {
			d.Policies = p.onto(d.Policies)
		}
	}
	if r.Layers.set {
		d.Layers = nil
		if r.Layers.value != nil {
			for _, l := range *r.Layers.value {
				layer := campaign.Layer{Layer: l.Layer, Price: l.Price}
				for _, p := range l.Prizes {
					layer.Prizes = append(layer.Prizes, campaign.PrizeGroup(p))
				}
				d.Layers = append(d.Layers, layer)
			}
		}
	}
	return d
}

// lay puts a value that was sent into place; null empties the place.
func lay[T any](o optional[T], place *T) {
	if !o.set {
		return
	}
	var zero T
	if *place = zero; o.value != nil {
		*place = *o.value
	}
}

func (p policyRequest) onto(policies campaign.Policies) campaign.Policies {
	if p.LatePayment != nil {
		policies.LatePayment = *p.LatePayment
	}
	if p.Unsold != nil {
		policies.Unsold = *p.Unsold
	}
	if p.Beacon != nil {
		policies.Beacon = *p.Beacon
	}
	policies.CancellationUntil = p.CancellationUntil
	return policies
}

// fixedFields lists the fields of the request that a campaign in this state keeps.
func (r campaignRequest) fixedFields(state campaign.State) []string {
	var fixed []string
	for _, f := range []struct {
		name  string
		set   bool
		amend bool // may change while active
	}{
		{"base_length", r.BaseLength.set, false}, {"currency", r.Currency.set, false}, {"layers", r.Layers.set, false},
		{"sale_starts_at", r.SaleStartsAt.set, false}, {"policies", r.Policies.set, false},
		{"purchase_limit", r.PurchaseLimit.set, true}, {"sale_ends_at", r.SaleEndsAt.set, true},
	} {
		if f.set && (!f.amend || state != campaign.Active) {
			fixed = append(fixed, f.name)
		}
	}
	return fixed
}

// checkDraft checks the rules of campaigns, and that no name has control characters.
func checkDraft(d campaign.Draft, bounds campaign.Bounds) error {
	if err := d.Check(bounds); err != nil {
		return err
	}
	faults := text("/name", d.Name, 1, campaign.MaxName)
	for _, l := range d.Layers {
		for _, p := range l.Prizes {
			faults = append(faults, text("/layers", p.Name, 1, campaign.MaxName)...)
		}
	}
	if len(faults) > 0 {
		return fault.Invalid(faults...)
	}
	return nil
}

func checkName(name *string) []fault.Field {
	if name == nil {
		return []fault.Field{{Pointer: "/name", Detail: "must not be null"}}
	}
	return text("/name", *name, 1, campaign.MaxName)
}

// campaignSummary is a campaign as lists show it.
type campaignSummary struct {
	ID              uuid.UUID         `json:"id"`
	Name            string            `json:"name"`
	BaseLength      int               `json:"base_length"`
	Currency        money.Currency    `json:"currency"`
	PurchaseLimit   *int              `json:"purchase_limit"`
	State           campaign.State    `json:"state"`
	Paused          bool              `json:"paused"`
	SaleStartsAt    *time.Time        `json:"sale_starts_at"`
	SaleEndsAt      *time.Time        `json:"sale_ends_at"`
	Policies        campaign.Policies `json:"policies"`
	Positions       countsDocument    `json:"positions"`
	CreatedAt       time.Time         `json:"created_at"`
	PublishedAt     *time.Time        `json:"published_at"`
	DrawStartedAt   *time.Time        `json:"draw_started_at"`
	DrawCompletedAt *time.Time        `json:"draw_completed_at"`
}

type countsDocument struct {
	Total     int `json:"total"`
	Available int `json:"available"`
	Reserved  int `json:"reserved"` // held or reserved
	Sold      int `json:"sold"`
}

// campaignDocument is a campaign with all it has.
type campaignDocument struct {
	campaignSummary
	Layers     []layerDocument `json:"layers"`
	Rules      json.RawMessage `json:"rules"`      // null before publication
	Commitment *string         `json:"commitment"` // hex; null before publication
}

type layerDocument struct {
	Layer     int            `json:"layer"`
	Price     int64          `json:"price"`
	Prizes    []prizeRequest `json:"prizes"`
	Positions countsDocument `json:"positions"`
}

func summaryJSON(c campaign.Campaign) campaignSummary {
	return campaignSummary{ID: c.ID, Name: c.Name, BaseLength: c.BaseLength, Currency: c.Currency, PurchaseLimit: c.PurchaseLimit,
		State: c.State, Paused: c.PausedAt != nil, SaleStartsAt: c.SaleStartsAt, SaleEndsAt: c.SaleEndsAt, Policies: c.Policies,
		Positions: countsDocument{Total: c.Counts.Total, Available: c.Counts.Available(), Reserved: c.Counts.Reserved, Sold: c.Counts.Sold},
		CreatedAt: c.CreatedAt, PublishedAt: c.PublishedAt, DrawStartedAt: c.DrawStartedAt, DrawCompletedAt: c.DrawCompletedAt}
}

// loadCampaign reads a campaign with its layers, counts and commitment.
func loadCampaign(ctx context.Context, db postgres.DB, id uuid.UUID) (campaignDocument, error) {
	c, err := campaign.Get(ctx, db, id)
	if err != nil {
		return campaignDocument{}, err
	}
	layers, err := campaign.Layers(ctx, db, id)
	if err != nil {
		return campaignDocument{}, err
	}
	counts, err := board.CountByLayer(ctx, db, id)
	if err != nil {
		return campaignDocument{}, err
	}
	document := campaignDocument{campaignSummary: summaryJSON(c)}
	for i, l := range layers {
		d := layerDocument{Layer: l.Layer, Price: l.Price, Prizes: make([]prizeRequest, 0, len(l.Prizes)),
			Positions: countsDocument{Total: triangle.InLayer(l.Layer), Available: triangle.InLayer(l.Layer)}}
		for _, p := range l.Prizes {
			d.Prizes = append(d.Prizes, prizeRequest(p))
		}
		if i < len(counts) { // none before publication
			d.Positions.Available, d.Positions.Reserved, d.Positions.Sold = counts[i].Available, counts[i].Reserved, counts[i].Sold
		}
		document.Layers = append(document.Layers, d)
	}
	bound, published, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil {
		return campaignDocument{}, err
	}
	if published {
		commitment := hex.EncodeToString(bound.Commitment)
		document.Rules, document.Commitment = bound.Rules, &commitment
	}
	return document, nil
}
