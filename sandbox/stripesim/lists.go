package stripesim

import (
	"net/http"
	"slices"
	"strings"
)

// The parameters of lists, beside paging.
var (
	listIntents   = paging.with(expanding("data.latest_charge"))
	listCharges   = parameters{"payment_intent": text}.with(paging).with(expanding("data.payment_intent"))
	listRefunds   = parameters{"payment_intent": text, "charge": text}.with(paging).with(expanding("data.charge", "data.payment_intent", "data.payment_intent.latest_charge"))
	listDisputes  = parameters{"payment_intent": text, "charge": text}.with(paging).with(expanding("data.charge", "data.payment_intent"))
	listMovements = parameters{"source": text, "type": text, "currency": text}.with(paging).with(expanding("data.source"))
	listEvents    = parameters{"type": text, "types[]": texts, "delivery_success": boolean}.with(paging)
)

// page returns the endpoint of a list, the newest first, as Stripe does: starting_after goes on
// to older ones, ending_before back to newer ones.
func page[T entry](fits func(params, T) bool) func(*change, *call) (object, *apiError) {
	return func(c *change, r *call) (object, *apiError) {
		var kind T
		list, p := c.lists[kind.kind()], r.params
		limit := 10
		if p.has("limit") {
			limit = int(p.number("limit"))
		}
		if problem := p.exclusive("starting_after", "ending_before"); problem != nil {
			return nil, problem
		}
		from, step := len(list)-1, -1
		for name, direction := range map[string]int{"starting_after": -1, "ending_before": 1} {
			if !p.has(name) {
				continue
			}
			at := slices.IndexFunc(list, func(v entry) bool { return v.id() == p.text(name) })
			if at < 0 {
				return nil, missing(http.StatusBadRequest, kind.kind(), name, p.text(name))
			}
			from, step = at+direction, direction
		}
		data, more := []object{}, false
		for ; from >= 0 && from < len(list) && !more; from += step {
			v, _ := list[from].(T)
			switch {
			case !within(p, v.at()) || !fits(p, v):
			case len(data) == limit:
				more = true
			default:
				data = append(data, v.render(c.unix()))
			}
		}
		if step > 0 {
			slices.Reverse(data)
		}
		return object{"object": "list", "data": data, "has_more": more, "url": r.path}, nil
	}
}

// within applies the filter created.
func within(p params, created int64) bool {
	return (!p.has("created") || created == p.number("created")) &&
		(!p.has("created[gt]") || created > p.number("created[gt]")) &&
		(!p.has("created[gte]") || created >= p.number("created[gte]")) &&
		(!p.has("created[lt]") || created < p.number("created[lt]")) &&
		(!p.has("created[lte]") || created <= p.number("created[lte]"))
}

// isListed applies the filters of events.
func (e *event) isListed(p params) bool {
	if p.has("delivery_success") && (e.Sendings == 0) != (p.text("delivery_success") == "true") {
		return false
	}
	wanted := slices.Concat(p["type"], p["types[]"])
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(pattern string) bool { // such as payment_intent.*
		prefix, all := strings.CutSuffix(pattern, "*")
		return pattern == e.Type || all && strings.HasPrefix(e.Type, prefix)
	})
}

func doListEvents(c *change, r *call) (object, *apiError) {
	if problem := r.params.exclusive("type", "types[]"); problem != nil {
		return nil, problem
	}
	return page(func(p params, e *event) bool { return e.isListed(p) })(c, r)
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
