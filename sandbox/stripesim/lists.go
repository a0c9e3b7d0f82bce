package stripesim

import (
	"net/http"
	"slices"
	"strings"
)

// The parameters of lists, beside paging.
var (
	listIntents  = paging.with(expanding("data.latest_charge"))
	listCharges  = parameters{"payment_intent": text}.with(paging).with(expanding("data.payment_intent"))
	listRefunds  = parameters{"payment_intent": text, "charge": text}.with(paging).with(expanding("data.charge", "data.payment_intent", "data.payment_intent.latest_charge"))
	listDisputes = parameters{"payment_intent": text, "charge": text}.with(paging).with(expanding("data.charge", "data.payment_intent"))
	listEvents   = parameters{"type": text, "types[]": texts, "delivery_success": boolean}.with(paging)
)

// page returns a page of a list, the newest first, as Stripe does: starting_after goes on
// to older ones, ending_before back to newer ones.
func page[T entry](r *call, what string, all collection[T], fits func(T) bool, render func(T) object) (object, *apiError) {
	p := r.params
	limit := 10
	if p.has("limit") {
		limit = int(p.number("limit"))
	}
	if p.has("starting_after") && p.has("ending_before") {
		return nil, refuse("parameters_exclusive", "starting_after", "You may only specify one of these parameters: starting_after, ending_before.")
	}
	from, backwards := len(all.list)-1, false
	for _, name := range []string{"starting_after", "ending_before"} {
		if !p.has(name) {
			continue
		}
		at := slices.IndexFunc(all.list, func(v T) bool { return v.id() == p.text(name) })
		if at < 0 {
			return nil, missing(http.StatusBadRequest, what, name, p.text(name))
		}
		from, backwards = at-1, name == "ending_before"
		if backwards {
			from = at + 1
		}
	}
	data, more := []object{}, false
	for ; from >= 0 && from < len(all.list); from = next(from, backwards) {
		v := all.list[from]
		if !within(p, v.at()) || !fits(v) {
			continue
		}
		if more = len(data) == limit; more {
			break
		}
		data = append(data, render(v))
	}
	if backwards {
		slices.Reverse(data)
	}
	return object{"object": "list", "data": data, "has_more": more, "url": r.path}, nil
}

func next(at int, backwards bool) int {
	if backwards {
		return at + 1
	}
	return at - 1
}

// within applies the filter created.
func within(p params, created int64) bool {
	return (!p.has("created") || created == p.number("created")) &&
		(!p.has("created[gt]") || created > p.number("created[gt]")) &&
		(!p.has("created[gte]") || created >= p.number("created[gte]")) &&
		(!p.has("created[lt]") || created < p.number("created[lt]")) &&
		(!p.has("created[lte]") || created <= p.number("created[lte]"))
}

// of filters by payment_intent and charge.
func of(p params, intent, charge string) bool {
	return (!p.has("payment_intent") || intent == p.text("payment_intent")) && (!p.has("charge") || charge == p.text("charge"))
}

func doListIntents(c *change, r *call) (object, *apiError) {
	return page(r, "payment_intent", c.intents, func(*intent) bool { return true }, (*intent).render)
}

func doListCharges(c *change, r *call) (object, *apiError) {
	return page(r, "charge", c.charges, func(v *charge) bool { return of(r.params, v.Intent, "") }, (*charge).render)
}

func doListRefunds(c *change, r *call) (object, *apiError) {
	return page(r, "refund", c.refunds, func(v *refund) bool { return of(r.params, v.Intent, v.Charge) }, (*refund).render)
}

func doListDisputes(c *change, r *call) (object, *apiError) {
	return page(r, "dispute", c.disputes, func(v *dispute) bool { return of(r.params, v.Intent, v.Charge) },
		func(v *dispute) object { return v.render(c.unix()) })
}

func doListEvents(c *change, r *call) (object, *apiError) {
	p := r.params
	if p.has("type") && p.has("types[]") {
		return nil, refuse("parameters_exclusive", "type", "You may only specify one of these parameters: type, types.")
	}
	wanted := p["types[]"]
	if p.has("type") {
		wanted = p["type"]
	}
	fits := func(e *event) bool {
		if p.has("delivery_success") && (e.Sendings == 0) != (p.text("delivery_success") == "true") {
			return false
		}
		return len(wanted) == 0 || slices.ContainsFunc(wanted, func(pattern string) bool { return matches(pattern, e.Type) })
	}
	return page(r, "event", c.events, fits, func(e *event) object { return e.render(apiVersion) })
}

// matches compares a type with a pattern such as payment_intent.*.
func matches(pattern, kind string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(kind, prefix)
	}
	return pattern == kind
}

func doGetEvent(c *change, r *call) (object, *apiError) {
	if e := c.events.by[r.object]; e != nil {
		return e.render(apiVersion), nil
	}
	return nil, missing(http.StatusNotFound, "event", "id", r.object)
}

func doGetCharge(c *change, r *call) (object, *apiError) {
	if v := c.charges.by[r.object]; v != nil {
		return v.render(), nil
	}
	return nil, missing(http.StatusNotFound, "charge", "id", r.object)
}

func doGetDispute(c *change, r *call) (object, *apiError) {
	if v := c.disputes.by[r.object]; v != nil {
		return v.render(c.unix()), nil
	}
	return nil, missing(http.StatusNotFound, "dispute", "dispute", r.object)
}

// expand replaces ids by the objects. The names of the fields were checked before.
func (c *change) expand(o object, fields []string) {
	for _, field := range fields {
		c.expandField(o, field)
	}
}

func (c *change) expandField(o object, field string) {
	name, rest, deeper := strings.Cut(field, ".")
	switch value := o[name].(type) {
	case []object: // the data of a list
		for _, one := range value {
			c.expandField(one, rest)
		}
	case string:
		if whole := c.byID(value, c.unix()); whole != nil {
			o[name] = whole
		}
	}
	if inner, ok := o[name].(object); ok && deeper {
		c.expandField(inner, rest)
	}
}
