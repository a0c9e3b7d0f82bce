package campaign

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
)

// State is the state of a campaign.
type State string

// The states; doc.go has the diagram.
const (
	Pending   State = "pending"
	Active    State = "active"
	Drawing   State = "drawing"
	Completed State = "completed"
	Cancelled State = "cancelled"
)

// States lists every state.
var States = []State{Pending, Active, Drawing, Completed, Cancelled}

// Closed reports whether the campaign never sells again: no state that can follow does.
func (s State) Closed() bool { return s == Drawing || s == Completed || s == Cancelled }

// Campaign is one campaign. Its layers are read with [Layers].
type Campaign struct {
	ID uuid.UUID
	Draft
	State           State
	PausedAt        *time.Time
	DrawsAt         *time.Time // the end of the sale, if what is sold by then is drawn; nil: only a sold-out campaign is drawn
	Counts          Counts
	CreatedAt       time.Time
	PublishedAt     *time.Time
	DrawStartedAt   *time.Time
	DrawCompletedAt *time.Time
	CancelledAt     *time.Time
	CancelledBy     *string // role:client, or job.System
	CancelReason    *string
	BoardVersion    int64 // grows with every change of a position
	Waiting         *Wait // after the sale; nil: it waits for nothing
}

// Counts is how many positions are in which state. Held ones count as reserved.
type Counts struct {
	Total    int
	Reserved int
	Sold     int
	Blocked  int
}

// Available returns how many positions are free.
func (c Counts) Available() int { return c.Total - c.Reserved - c.Sold - c.Blocked }

// Policies are the campaign's rules for special cases. They are stored with the
// campaign from the start, so that they are known before the first sale.
type Policies struct {
	LatePayment       string     `json:"late_payment"` // refund or reassign
	Unsold            string     `json:"unsold"`       // stay, cancel or draw
	CancellationUntil *time.Time `json:"cancellation_until,omitempty"`
	Beacon            bool       `json:"beacon"` // the draw waits for public randomness
}

// The values of the policies; the first of each is the default.
const (
	LatePaymentRefund   = "refund"
	LatePaymentReassign = "reassign"
	UnsoldStay          = "stay"
	UnsoldCancel        = "cancel"
	UnsoldDraw          = "draw"
)

// Layer is one layer of a campaign: how many positions it has, what they cost, and what can
// be won in it.
type Layer struct {
	Layer     int
	Positions int    // of a draft, 0: those of a triangle
	Label     string // empty: none
	Aisles    []int  // as in shape.Layer
	Price     money.Amount
	Prizes    []PrizeGroup
}

// PrizeGroup is a number of equal prizes.
type PrizeGroup struct {
	Name  string
	Count int
}

// Draft is what a campaign is made from, and may be changed to while it is pending.
type Draft struct {
	Name          string
	BaseLength    int // 0: the layers say how many positions they have
	Currency      money.Currency
	PurchaseLimit *int // positions per user; nil: no limit
	SaleStartsAt  *time.Time
	SaleEndsAt    *time.Time
	Policies      Policies
	Layers        []Layer // every layer once, in order
	Metadata      metadata.Map
}

// Shape returns the shape of a checked draft.
func (d Draft) Shape() shape.Shape { return shapeOf(d.Layers) }

// shapeOf returns the shape of all layers of a campaign, in order.
func shapeOf(layers []Layer) shape.Shape {
	list := make([]shape.Layer, len(layers))
	for i, l := range layers {
		list[i] = shape.Layer{Positions: l.positions(), Label: l.Label, Aisles: l.Aisles}
	}
	return shape.New(list)
}

// positions returns how many positions a layer of a checked draft has.
func (l Layer) positions() int {
	if l.Positions == 0 {
		return l.Layer
	}
	return l.Positions
}
