package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// Selection is the positions that a request wants, all or nothing: chosen positions, a number of
// free ones, random or side by side, or those of a hold.
type Selection struct {
	Layer     int              `json:"layer,omitempty"` // 0: anywhere in the campaign
	Quantity  int              `json:"quantity,omitempty"`
	Adjacent  bool             `json:"adjacent,omitempty"`
	Positions []shape.Position `json:"positions,omitempty"`
	Numbers   []int            `json:"numbers,omitempty"` // by which positions were chosen, if any was; 0: by layer and column
	HoldID    uuid.UUID        `json:"hold_id,omitzero"`
}

// maxAdjacentLayer bounds the layers in which positions are found side by side: a layer is
// read as a whole, under the lock of its campaign.
const maxAdjacentLayer = 10_000

// Size is the number of positions that the selection wants.
func (s Selection) Size() int { return max(s.Quantity, len(s.Positions)) }

// Check returns an invalid-request Error when a campaign of this shape can never give the
// selection. at is the JSON pointer of the selection in the request.
func (s Selection) Check(form shape.Shape, at string) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf(format, args...)})
	}
	var missing []fault.Field
	for i, p := range s.Positions {
		if why := Missing(form, p); why != "" {
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: why})
		} else if i < len(s.Numbers) && s.Numbers[i] != 0 && s.Numbers[i] != form.Number(p) { // the draft was reshaped since
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d/number", at, i),
				Detail: fmt.Sprintf("%d was another position when it was chosen: the layers of the campaign have changed", s.Numbers[i])})
		}
	}
	switch {
	case len(missing) > 0:
		return fault.Invalid(missing...)
	case len(s.Positions) > 0:
		return nil
	case s.Layer < 0 || s.Layer > form.Layers():
		return invalid("/layer", "the campaign has layers 1 to %d", form.Layers())
	case s.Quantity < 1:
		return invalid("/quantity", "must be at least 1")
	case s.Layer > 0 && s.Quantity > form.InLayer(s.Layer):
		return invalid("/quantity", "%s has no more than %d in all", form.LayerName(s.Layer), form.InLayer(s.Layer))
	case s.Quantity > form.Count():
		return invalid("/quantity", "the campaign has no more than %d in all", form.Count())
	case s.Adjacent && form.LargestLayer(s.Layer) > maxAdjacentLayer:
		return invalid("/adjacent", "goes with layers of %d positions at most; one of %s has %d", maxAdjacentLayer, s.where(), form.LargestLayer(s.Layer))
	case s.Adjacent && s.Quantity > form.LongestRun(s.Layer):
		return invalid("/quantity", "no more than %d positions of %s are side by side", form.LongestRun(s.Layer), s.where())
	}
	return nil
}

// With returns the selection with the chosen positions, of a request that wants at most so many. The Error is
// invalid-request if the campaign can never give it: no job is made of it, and its key can be used again. at is the JSON
// pointer of the selection. The sale checks what can change.
func (s Selection) With(ctx context.Context, db postgres.DB, terms *campaign.TermsCache, campaignID uuid.UUID, chosen []Choice, at string, most int) (Selection, error) {
	if s.Quantity > most {
		return s, fault.Invalid(fault.Field{Pointer: at + "/quantity", Detail: fmt.Sprintf("must be at most %d", most)})
	}
	known, err := terms.Of(ctx, db, campaignID)
	if err != nil || len(chosen) == 0 && s.Quantity == 0 { // a hold has its positions already
		return s, err
	}
	if s.Positions, s.Numbers, err = Choose(chosen, at, known.Shape); err != nil {
		return s, err
	}
	if err := s.Check(known.Shape, at); err != nil {
		return s, err
	}
	if known.CheckLimit(0, s.Size()) == nil {
		return s, nil
	}
	if known, err = terms.Read(ctx, db, campaignID); err == nil && known.CheckLimit(0, s.Size()) != nil { // the limit may have been raised
		pointer := "/quantity"
		if len(chosen) > 0 {
			pointer = "/positions"
		}
		err = fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf("the campaign allows %d positions per user", *known.PurchaseLimit)})
	}
	return s, err
}

// Choice is a chosen position: layer and column, or its number alone.
type Choice struct{ Layer, Column, Number int }

// Choose returns the chosen positions, each once, and the numbers by which they were chosen, if any was; 0: by layer and
// column. An invalid-request Error names every one at fault.
func Choose(chosen []Choice, at string, form shape.Shape) (positions []shape.Position, numbers []int, err error) {
	var wrong []fault.Field
	seen := make(map[shape.Position]bool, len(chosen))
	for i, c := range chosen {
		bad := func(pointer, detail string) {
			wrong = append(wrong, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d%s", at, i, pointer), Detail: detail})
		}
		p, ok := shape.Position{Layer: c.Layer, Column: c.Column}, true
		if c.Number > 0 {
			if p, ok = form.At(c.Number); numbers == nil {
				numbers = make([]int, len(chosen))
			}
			numbers[i] = c.Number
		}
		switch missing := Missing(form, p); {
		case (c.Number > 0) == (c.Layer > 0) || (c.Layer > 0) != (c.Column > 0):
			bad("", "must have layer and column, or number alone")
		case !ok:
			bad("/number", fmt.Sprintf("the campaign has positions 1 to %d", form.Count()))
		case missing != "":
			bad("", missing)
		case seen[p]:
			bad("", "position "+form.Name(p)+" was sent twice")
		default:
			seen[p] = true
			positions = append(positions, p)
		}
	}
	if len(wrong) > 0 {
		return nil, nil, fault.Invalid(wrong...)
	}
	return positions, numbers, nil
}

// CheckSale returns why the campaign c, which is nil when it does not exist, does not sell a
// selection now: first whether it is a draft, whose shape can still change, then whether it has
// such positions at all, then the state of the sale. A selection of a hold was checked before.
func (s Selection) CheckSale(c *campaign.Snapshot, campaignID uuid.UUID, at string) error {
	if c == nil {
		return campaign.NotFound(campaignID)
	}
	if c.State != campaign.Pending && s.HoldID == uuid.Nil {
		if err := s.Check(c.Shape, at); err != nil {
			return err
		}
	}
	return c.CheckOnSale()
}

// where names the part of the campaign that the positions come from.
func (s Selection) where() string {
	if s.Layer == 0 {
		return "the campaign"
	}
	return fmt.Sprintf("layer %d", s.Layer)
}

// Missing returns why a campaign of this shape has no such position; empty: it has.
func Missing(form shape.Shape, p shape.Position) string {
	switch n := form.InLayer(p.Layer); {
	case n == 0:
		return fmt.Sprintf("there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, form.Layers())
	case !form.Has(p):
		return fmt.Sprintf("there is no position %d/%d; %s has columns 1 to %d", p.Layer, p.Column, form.LayerName(p.Layer), n)
	}
	return ""
}

// Stock is what a transaction can assign: the free positions it has found, and
// the positions that requests named, free or not. The first request that selects a
// position gets it. A Stock is for one goroutine.
type Stock struct {
	free    map[PositionID]*FreePosition
	named   map[PositionID]*StoredPosition
	pools   map[Pool][]*FreePosition // by rank
	runs    map[Pool]*layerRuns      // for requests of adjacent positions
	forms   map[uuid.UUID]shape.Shape
	holders map[PositionID]Holder // by this transaction
	gone    map[Pool]int          // sold or blocked; counted for campaigns, and for layers that may not have enough
}

// Holder is the hold or the unpaid purchase that has a position, and its user.
type Holder struct {
	Client, UserID string
	fault.About
}

func heldBy(client, userID string, holdID uuid.UUID) Holder {
	return Holder{client, userID, fault.About{Kind: fault.AboutHold, ID: holdID.String()}}
}

// ReservedBy returns an unpaid purchase, whose id is that of its job, as a holder.
func ReservedBy(client, userID string, purchaseID uuid.UUID) Holder {
	return Holder{client, userID, fault.About{Kind: fault.AboutPurchase, ID: purchaseID.String(), JobID: purchaseID.String()}}
}

// holder returns the holder of a position as it was read, or the zero one.
func (f *StoredPosition) holder() Holder {
	switch {
	case f.State == Held && f.HoldID != nil:
		return heldBy(f.Client, f.UserID, *f.HoldID)
	case f.State == Reserved && f.PurchaseID != nil:
		return ReservedBy(f.Client, f.UserID, *f.PurchaseID)
	}
	return Holder{}
}

// Select returns the positions of a selection by layer and column, or an Error. at is its JSON
// pointer in the request. Random positions for which avoid returns true are skipped; avoid may
// be nil. Select takes nothing out of the stock: call Reserve or Sell with the result.
func (s *Stock) Select(campaignID uuid.UUID, sel Selection, at string, avoid func(shape.Position) bool) ([]*FreePosition, error) {
	if len(sel.Positions) > 0 {
		return s.choose(campaignID, sel.Positions, at)
	}
	if sel.Adjacent {
		return s.adjacent(campaignID, sel, avoid)
	}
	picked := s.first(Pool{campaignID, sel.Layer}, sel.Quantity, avoid)
	if picked == nil {
		return nil, s.whyNone(campaignID, sel, fault.New(fault.NoneAvailable, "requested %d, but fewer are free at the moment; held and reserved positions may become free", sel.Quantity))
	}
	return sorted(picked), nil
}

// choose returns the chosen positions, or an Error that lists those that are taken.
func (s *Stock) choose(campaignID uuid.UUID, positions []shape.Position, at string) ([]*FreePosition, error) {
	picked := make([]*FreePosition, 0, len(positions))
	var gone []int
	for i, p := range positions {
		if f := s.free[PositionID{campaignID, p}]; f != nil && !f.taken {
			picked = append(picked, f)
		} else {
			gone = append(gone, i)
		}
	}
	if len(gone) > 0 {
		return nil, taken(campaignID, at, positions, gone, s.forms[campaignID], s.named)
	}
	return sorted(picked), nil
}

// taken returns a position-taken Error about those of the chosen positions that are gone. It says
// when the last of them is free unless somebody buys it, as they were read now; it does not when
// one of them is sold or was taken a moment ago.
func taken(campaignID uuid.UUID, at string, positions []shape.Position, gone []int, form shape.Shape, now map[PositionID]*StoredPosition) error {
	fields, free, known := make([]fault.Field, len(gone)), time.Time{}, true
	for n, i := range gone {
		fields[n] = fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: fmt.Sprintf("position %s is taken", form.Name(positions[i]))}
		f := now[PositionID{campaignID, positions[i]}]
		if f == nil || f.State != Held && f.State != Reserved || f.Remaining <= 0 {
			known = false
		} else if ends := time.Now().Add(f.Remaining).UTC().Truncate(time.Millisecond); ends.After(free) {
			free = ends
		}
	}
	refusal := fault.Taken(fields...)
	if known {
		refusal.RetryAt = free
	}
	return refusal
}

// first returns the first n positions of a pool by rank that are neither taken nor
// to be avoided, or nil when there are not enough.
func (s *Stock) first(pool Pool, n int, avoid func(shape.Position) bool) []*FreePosition {
	left := s.pools[pool]
	for len(left) > 0 && left[0].taken {
		left = left[1:] // skip the taken ones at the front for good
	}
	s.pools[pool] = left
	picked := make([]*FreePosition, 0, n)
	for _, f := range left {
		if len(picked) == n {
			break
		}
		if !f.taken && (avoid == nil || !avoid(f.Position)) {
			picked = append(picked, f)
		}
	}
	if len(picked) < n {
		return nil
	}
	return picked
}

// whyNone returns sold-out, which is final, when everything that is not blocked is sold, and
// otherwise forNow. It decides by the counts, because the search skips rows that other transactions have locked.
func (s *Stock) whyNone(campaignID uuid.UUID, sel Selection, forNow error) error {
	switch form := s.forms[campaignID]; {
	case s.gone[Pool{campaignID, 0}] == form.Count():
		return fault.New(fault.SoldOut, "all positions on sale are sold")
	case sel.Layer > 0 && s.gone[Pool{campaignID, sel.Layer}] == form.InLayer(sel.Layer):
		return fault.New(fault.SoldOut, "all positions on sale in %s are sold", form.LayerName(sel.Layer))
	default:
		return forNow
	}
}

// OfHold returns the positions of an active hold by layer and column. When one of
// them is not held by it the data is wrong: that is postgres.ErrRows, not a refusal.
func (s *Stock) OfHold(h Hold) ([]*FreePosition, error) {
	picked := make([]*FreePosition, 0, len(h.Positions))
	for _, p := range h.Positions {
		f := s.named[PositionID{h.CampaignID, p.Position}]
		if f == nil || f.State != Held || f.HoldID == nil || *f.HoldID != h.ID {
			return nil, fmt.Errorf("%w: hold %s does not have %d/%d", postgres.ErrRows, h.ID, p.Layer, p.Column)
		}
		picked = append(picked, &f.FreePosition)
	}
	return sorted(picked), nil
}

// NameOwn adds to a position-taken Error the hold of the same client and user, which can be bought, or the
// purchase, which can still be paid, that has a position of the selection. Other errors stay as they are.
func (s *Stock) NameOwn(err error, campaignID uuid.UUID, client, userID string, sel Selection) error {
	if refusal, ok := errors.AsType[*fault.Error](err); ok && refusal.Code == fault.PositionTaken {
		for _, p := range sel.Positions {
			if own := s.holderOf(PositionID{campaignID, p}); own.Client == client && own.UserID == userID {
				refusal.About = own.About
				break
			}
		}
	}
	return err
}

// holderOf returns the holder of a position now, or the zero one.
func (s *Stock) holderOf(at PositionID) Holder {
	if f := s.named[at]; f != nil && f.State != Available && !f.taken {
		return f.holder()
	}
	return s.holders[at]
}

// Reserve takes positions out of the stock, for a new hold or reservation.
func (s *Stock) Reserve(picked []*FreePosition, by Holder) {
	for _, f := range picked {
		f.taken = true
		s.holders[f.PositionID] = by
	}
}

// Sell takes positions out of the stock, as sold.
func (s *Stock) Sell(picked []*FreePosition) {
	for _, f := range picked {
		f.taken = true
		s.gone[Pool{f.CampaignID, 0}]++
		s.gone[Pool{f.CampaignID, f.Layer}]++
	}
}

// sorted sorts positions by layer and column, in place.
func sorted(picked []*FreePosition) []*FreePosition {
	slices.SortFunc(picked, func(x, y *FreePosition) int { return cmp.Or(x.Layer-y.Layer, x.Column-y.Column) })
	return picked
}
