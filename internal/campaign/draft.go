package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
)

// MaxName bounds the names of campaigns and prizes, in characters.
const MaxName = 200

// MaxPrizes bounds the prizes of a campaign: all of them stand in its rules, and in the
// proof of its draw, which others must be able to read.
const MaxPrizes = 10_000

// Bounds are the limits an installation sets.
type Bounds struct {
	MaxPositions int  // of a campaign
	Beacon       bool // whether it asks a beacon, so that campaigns can have one
}

// Check returns an invalid-request Error that names every wrong field. Layers
// are only checked when all other fields are right.
func (d Draft) Check(bounds Bounds) error {
	var faults []fault.Field
	bad := func(pointer, format string, args ...any) {
		faults = append(faults, fault.Field{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
	checkName(d.Name, "/name", bad)
	if d.BaseLength != 0 && (d.BaseLength < shape.MinBaseLength || d.BaseLength > shape.MaxBaseLength || shape.TriangleCount(d.BaseLength) > bounds.MaxPositions) {
		bad("/base_length", "must be %d to %d, and a campaign has %d positions at most", shape.MinBaseLength, shape.MaxBaseLength, bounds.MaxPositions)
	}
	if _, err := money.ParseCurrency(string(d.Currency)); err != nil {
		bad("/currency", "must be an ISO 4217 code in capitals, such as JPY")
	}
	if d.PurchaseLimit != nil && *d.PurchaseLimit < 1 {
		bad("/purchase_limit", "must be at least 1, or left out for none")
	}
	if d.SaleStartsAt != nil && d.SaleEndsAt != nil && !d.SaleEndsAt.After(*d.SaleStartsAt) {
		bad("/sale_ends_at", "must be after sale_starts_at")
	}
	faults = slices.Concat(faults, checkTime(d.SaleStartsAt, "/sale_starts_at"), checkTime(d.SaleEndsAt, "/sale_ends_at"),
		checkTime(d.Policies.CancellationUntil, "/policies/cancellation_until"))
	d.Policies.check(bounds, bad)
	faults = slices.Concat(faults, d.CheckPage())
	if unsold := d.Policies.Unsold; (unsold == UnsoldCancel || unsold == UnsoldDraw) && d.SaleEndsAt == nil {
		bad("/policies/unsold", "%s acts when the sale ends: it needs sale_ends_at", unsold)
	}
	if len(faults) == 0 {
		d.checkLayers(bounds, bad)
	}
	if len(faults) > 0 {
		return fault.Invalid(faults...)
	}
	return nil
}

// CheckPage returns what is wrong with the public page of a draft.
func (d Draft) CheckPage() []fault.Field {
	if (d.PublicPage == PublicPageEmbed) == (len(d.EmbedOrigins) > 0) {
		return nil
	}
	return []fault.Field{{Pointer: "/embed_origins", Detail: "must name the origins of pages that can frame the public page if public_page is embed, and must be left out otherwise"}}
}

// checkTime requires a year that RFC 3339 can show in every time zone: its years
// end at 9999, and a zone can be in the next year already.
func checkTime(t *time.Time, pointer string) []fault.Field {
	const earliest, latest = 2000, 9998
	if t == nil || earliest <= t.UTC().Year() && t.UTC().Year() <= latest {
		return nil
	}
	return []fault.Field{{Pointer: pointer, Detail: fmt.Sprintf("must be in the years %d to %d", earliest, latest)}}
}

func (p Policies) check(bounds Bounds, bad func(string, string, ...any)) {
	if p.Unsold != UnsoldStay && p.Unsold != UnsoldCancel && p.Unsold != UnsoldDraw {
		bad("/policies/unsold", "must be %s, %s or %s", UnsoldStay, UnsoldCancel, UnsoldDraw)
	}
	if p.Disputes != "" && p.Disputes != DisputesKeep && p.Disputes != DisputesRelease {
		bad("/policies/disputes", "must be %s or %s", DisputesKeep, DisputesRelease)
	}
	if p.Beacon && !bounds.Beacon {
		bad("/policies/beacon", "this installation draws without a public beacon (its setting beacon.relays is empty); leave it out")
	}
}

// checkLayers requires every layer 1..n once, in order, with a price, as many positions as
// the shape says, and no more prizes than positions.
func (d Draft) checkLayers(bounds Bounds, bad func(string, string, ...any)) {
	if d.BaseLength != 0 && len(d.Layers) != d.BaseLength {
		bad("/layers", "must have every layer 1 to %d once; there are %d", d.BaseLength, len(d.Layers))
		return
	}
	if len(d.Layers) < 1 || len(d.Layers) > shape.MaxLayers {
		bad("/layers", "must be 1 to %d layers", shape.MaxLayers)
		return
	}
	positions, prizes := 0, 0
	for i, layer := range d.Layers {
		at := "/layers/" + strconv.Itoa(i)
		if layer.Layer != i+1 {
			bad(at+"/layer", "every layer 1 to %d must come once, in order", len(d.Layers))
			return
		}
		if !d.checkPositions(layer, at, bad) {
			return
		}
		positions += layer.positions()
		prizes += layer.check(at, bad)
	}
	if positions > bounds.MaxPositions {
		bad("/layers", "must have %d positions at most in all; there are %d", bounds.MaxPositions, positions)
	}
	if prizes > MaxPrizes {
		bad("/layers", "must have %d prizes at most; there are %d", MaxPrizes, prizes)
	}
}

// checkPositions checks how many positions a layer has: those of a triangle need not be said.
func (d Draft) checkPositions(layer Layer, at string, bad func(string, string, ...any)) (ok bool) {
	switch {
	case d.BaseLength != 0 && layer.positions() != layer.Layer:
		bad(at+"/positions", "layer %d of a triangle has %d positions; leave out base_length for another shape", layer.Layer, layer.Layer)
	case d.BaseLength == 0 && layer.Positions == 0:
		bad(at+"/positions", "must say how many positions the layer has, unless base_length makes the campaign a triangle")
	case layer.Positions < 0 || layer.Positions > shape.MaxPositions:
		bad(at+"/positions", "must be 1 to %d", shape.MaxPositions)
	default:
		return true
	}
	return false
}

// check checks what stands in a layer, and returns how many prizes it has.
func (l Layer) check(at string, bad func(string, string, ...any)) (prizes int) {
	if l.Price < 1 || l.Price > money.MaxAmount {
		bad(at+"/price", "must be 1 to %d minor units", money.MaxAmount)
	}
	if n := utf8.RuneCountInString(l.Label); n > shape.MaxLabel {
		bad(at+"/label", "must have 1 to %d characters", shape.MaxLabel)
	}
	l.checkAisles(at+"/aisles", bad)
	for j, prize := range l.Prizes {
		checkName(prize.Name, at+"/prizes/"+strconv.Itoa(j)+"/name", bad)
		if prize.Count < 1 || prize.Count > l.positions()-prizes {
			bad(at+"/prizes/"+strconv.Itoa(j)+"/count", "must be at least 1, and layer %d has room for %d prizes in all", l.Layer, l.positions())
			break
		}
		prizes += prize.Count
	}
	return prizes
}

// checkAisles requires columns in order, each once, and each with a column behind it.
func (l Layer) checkAisles(at string, bad func(string, string, ...any)) {
	if len(l.Aisles) > shape.MaxAisles {
		bad(at, "must have %d columns at most", shape.MaxAisles)
		return
	}
	before := 0
	for i, column := range l.Aisles {
		if column <= before || column >= l.positions() {
			bad(at+"/"+strconv.Itoa(i), "must be columns in order, each once, from 1 to %d: an aisle is behind a column, and layer %d has %d", l.positions()-1, l.Layer, l.positions())
			return
		}
		before = column
	}
}

func checkName(name, pointer string, bad func(string, string, ...any)) {
	if n := utf8.RuneCountInString(name); n < 1 || n > MaxName {
		bad(pointer, "must have 1 to %d characters", MaxName)
	}
}

// Patch is a change to a campaign. Fields that are nil, or not Set, stay as they are.
type Patch struct {
	Name          *string
	BaseLength    *int
	Currency      *money.Currency
	Layers        []Layer
	Policies      *Policies
	PurchaseLimit Optional[int]
	SaleStartsAt  Optional[time.Time]
	SaleEndsAt    Optional[time.Time]
	Metadata      *metadata.Map // replaced as a whole, in every state
	PublicPage    *PublicPage   // in every state, too; it replaces the origins
	EmbedOrigins  *[]string
}

// Optional is a new value for a field that may be empty: Set with a nil Value
// empties the field.
type Optional[T any] struct {
	Set   bool
	Value *T
}

// Apply returns the draft with the changes of a patch. Layers that say how many positions they
// have make the campaign what they say; those that do not are of a triangle. A new base
// length alone leaves the layers, and Check refuses what does not go together.
func (d Draft) Apply(p Patch) Draft {
	if p.Name != nil {
		d.Name = *p.Name
	}
	if p.Currency != nil {
		d.Currency = *p.Currency
	}
	if p.Layers != nil {
		d.Layers = p.Layers
		if slices.ContainsFunc(p.Layers, func(l Layer) bool { return l.Positions != 0 }) {
			d.BaseLength = 0
		}
	}
	if p.BaseLength != nil {
		d.BaseLength = *p.BaseLength
	}
	if p.Policies != nil {
		d.Policies = *p.Policies
	}
	if p.PurchaseLimit.Set {
		d.PurchaseLimit = p.PurchaseLimit.Value
	}
	if p.SaleStartsAt.Set {
		d.SaleStartsAt = p.SaleStartsAt.Value
	}
	if p.SaleEndsAt.Set {
		d.SaleEndsAt = p.SaleEndsAt.Value
	}
	if p.Metadata != nil {
		d.Metadata = *p.Metadata
	}
	if p.PublicPage != nil {
		d.PublicPage, d.EmbedOrigins = *p.PublicPage, nil
	}
	if p.EmbedOrigins != nil {
		d.EmbedOrigins = *p.EmbedOrigins
	}
	return d
}

// CheckFixed returns a state-conflict Error when a patch changes what can no
// longer change in a campaign that is not pending. While the campaign is active
// the name, a higher limit and a later end can change; afterwards only the name. The
// metadata and the public page can change at any time.
func (p Patch) CheckFixed(state State) error {
	var fixed []string
	changes := func(name string, set bool) {
		if set {
			fixed = append(fixed, name)
		}
	}
	changes("base_length", p.BaseLength != nil)
	changes("currency", p.Currency != nil)
	changes("layers", p.Layers != nil)
	changes("sale_starts_at", p.SaleStartsAt.Set)
	changes("policies", p.Policies != nil)
	changes("purchase_limit", p.PurchaseLimit.Set && state != Active)
	changes("sale_ends_at", p.SaleEndsAt.Set && state != Active)
	if len(fixed) > 0 {
		return fault.New(fault.StateConflict, "the campaign is %s; these fields can no longer be changed: %v", state, fixed)
	}
	return nil
}
