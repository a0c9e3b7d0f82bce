package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/api"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/openapi"
)

// draftTexts are what the form of a campaign calls its fields, in their order. The contract has the rest.
var draftTexts = []struct{ pointer, label, hint string }{
	{"/name", "Name", ""},
	{"/currency", "Currency", "ISO 4217, such as JPY"},
	{"/base_length", "Base length of a triangle", "its layer k has k positions; empty: another shape"},
	{"/layers", "Layers", "one a line: positions | label | price in minor units | aisles 10,20 | Gold x1, Silver x2. Label, aisles and prizes may be left out. " +
		"A triangle needs no positions, and may have fewer lines: the last price is that of all further layers."},
	{"/purchase_limit", "Limit for a user", "positions; empty: none"},
	{"/sale_starts_at", "Sale begins (UTC)", "empty: with the publication"},
	{"/sale_ends_at", "Sale ends (UTC)", "empty: when everything is sold"},
	{"/policies/unsold", "Unsold at the end", "stay: nothing happens; cancel: everything is refunded; draw: the sold positions are drawn"},
	{"/policies/beacon", "Beacon", "the draw waits for public randomness; default: as this installation does"},
	{"/policies/disputes", "Lost disputes", "keep: the buyer keeps the positions; release: the purchase is cancelled without a refund while the campaign is active"},
	{"/policies/cancellation_until", "Users cancel until (UTC)", "empty: as long as the campaign is active"},
	{"/public_page", "Public page", "page: anybody can watch the campaign once it is published; embed: pages of the origins below can also show it in a frame"},
	{"/embed_origins", "Origins that can frame it", "such as https://shop.example, separated by spaces"},
}

// draftFields are the fields of a campaign: the members that the contract lets a new one have. What has no text above is
// called as in the contract, and comes last.
var draftFields = sync.OnceValue(func() (fields []field) {
	document, err := openapi.Load(api.OpenAPI, nil)
	if err != nil {
		panic(err) // no api begins with such a contract
	}
	found := make(map[string]openapi.Member)
	for _, o := range document.Operations {
		if o.ID == "createCampaign" {
			for _, m := range o.Members() {
				found[m.Pointer] = m
			}
		}
	}
	add := func(m openapi.Member, label, hint string) {
		one := field{Name: m.Pointer, Label: label, Hint: hint, Type: "text", Options: m.Enum, Required: m.Required, member: m}
		switch {
		case m.Pointer == "/layers":
			one.Type = "textarea"
		case m.Type == "boolean":
			one.Type, one.Options = "select", []string{"default", "yes", "no"}
		case m.Enum != nil:
			one.Type = "select"
		case m.Type == "integer":
			one.Type = "number"
		case m.Format == "date-time":
			one.Type = "datetime-local"
		}
		fields = append(fields, one)
		delete(found, m.Pointer)
	}
	for _, text := range draftTexts {
		add(found[text.pointer], text.label, text.hint)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		add(found[name], strings.ReplaceAll(path.Base(name), "_", " "), "")
	}
	return fields
})

// draftForm is the form that creates or changes a campaign.
func draftForm(ctx context.Context, f *fiber.Ctx, api *client.Client) (a action, do run, err error) {
	a = action{IsDraft: true, Path: f.Path(), Title: "New campaign", Back: Path + "/campaigns"}
	var edited client.Campaign
	var now map[string]string // nil: a new campaign
	if f.Params("id") != "" {
		if edited, err = api.GetCampaign(ctx, pathID(f.Params("id"))); err != nil {
			return a, nil, err
		}
		now, a.Title, a.Back = valuesOf(edited), "Edit "+edited.Name, a.Back+"/"+edited.ID.String()
		a.Text = "Only the fields that you change are saved."
		same, _ := json.Marshal(layersOf(edited))
		if read, _ := json.Marshal(draftOf(&form{values: now, Faults: make(map[string]string)}).Layers); string(read) != string(same) {
			a.Layers = layersOf(edited)
			a.Text += " Its layers can be changed over the API only: a line of text cannot hold one of their labels or prizes as it is."
			delete(now, "/layers")
			delete(now, "/base_length")
		}
	}
	for _, one := range slices.Concat(draftFields(), []field{reason}) {
		value, isHeld := now[one.Name]
		if one.Value = value; isHeld || now == nil || one.Name == reason.Name {
			a.Fields = append(a.Fields, one)
		}
	}
	return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		draft := draftOf(typed)
		if len(typed.Faults) > 0 {
			return nil
		}
		if now == nil {
			made, err := api.CreateCampaign(ctx, draft, options...)
			typed.next = a.Back + "/" + made.ID.String()
			return err
		}
		patch, err := patchOf(typed.values, now, draft, edited)
		if err != nil {
			return err
		}
		_, err = api.PatchCampaign(ctx, edited.ID, patch, options...)
		return err
	}, nil
}

// layersOf returns the layers of a campaign as a draft has them.
func layersOf(c client.Campaign) (layers []client.LayerDraft) {
	for _, l := range c.Layers {
		layers = append(layers, client.LayerDraft{Layer: l.Layer, Positions: l.Positions.Total, Label: l.Label, Aisles: l.Aisles, Price: l.Price, Prizes: l.Prizes})
	}
	return layers
}

// valuesOf returns the fields of a campaign as a browser sends them.
func valuesOf(c client.Campaign) map[string]string {
	var lines []string
	for _, layer := range c.Layers {
		line, mark := fmt.Sprintf("%d | %s | %d", layer.Positions.Total, layer.Label, layer.Price), " | aisles "
		for _, column := range layer.Aisles {
			line, mark = line+mark+strconv.Itoa(column), ","
		}
		mark = " | "
		for _, prize := range layer.Prizes {
			line, mark = fmt.Sprintf("%s%s%s x%d", line, mark, prize.Name, prize.Count), ", "
		}
		lines = append(lines, line)
	}
	members, policies, values := membersOf(c), membersOf(c.Policies), make(map[string]string)
	for _, one := range draftFields() {
		policy, isPolicy := strings.CutPrefix(one.Name, "/policies/")
		if values[one.Name] = one.written(members[one.Name[1:]]); isPolicy {
			values[one.Name] = one.written(policies[policy])
		}
	}
	values["/layers"] = strings.Join(lines, "\n")
	return values
}

// written returns a member of a campaign as a browser sends it.
func (f field) written(member json.RawMessage) string {
	var value any
	_ = json.Unmarshal(member, &value)
	switch value := value.(type) {
	case bool:
		return map[bool]string{true: "yes", false: "no"}[value]
	case float64:
		return strings.TrimPrefix(string(member), "0") // 0: none
	case []any:
		return strings.Trim(fmt.Sprint(value), "[]")
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil && f.Type == "datetime-local" {
			return strings.TrimSuffix(strings.Replace(utc(at, ""), " ", "T", 1), ":00")
		}
		return value
	}
	return ""
}

// draftOf reads what the fields of a form have, and marks those that cannot be read.
func draftOf(t *form) (d client.CampaignDraft) {
	members, policies := make(map[string]any), make(map[string]any)
	for _, one := range draftFields() {
		if policy, isPolicy := strings.CutPrefix(one.Name, "/policies/"); isPolicy {
			policies[policy] = t.read(one)
		} else if one.Type != "textarea" {
			members[one.Name[1:]] = t.read(one)
		}
	}
	members["policies"] = policies
	body, _ := json.Marshal(members)
	_ = json.Unmarshal(body, &d)
	d.Layers = t.layers(d.BaseLength)
	return d
}

// read reads a member of a campaign.
func (t *form) read(one field) any {
	switch text := t.text(one.Name); {
	case one.Type == "number":
		n := t.number(one.Name)
		if float64(n) < one.member.Least && text != "" {
			t.mark(one.Name, fmt.Sprintf("must be at least %.0f, or empty", one.member.Least))
		}
		return n
	case one.Type == "datetime-local":
		return t.time(one.Name)
	case one.member.Type == "boolean":
		return map[string]any{"yes": true, "no": false}[text]
	case one.member.Type == "array":
		return strings.Fields(text)
	default:
		return text
	}
}

var (
	layerLine = regexp.MustCompile(`^(\d{0,6})\s*\|([^|]*)\|\s*(\d{1,13})\s*(?:\|\s*aisles ([\d, ]+))?(?:\|([^|]*))?$`)
	prizeText = regexp.MustCompile(`\s*([^|]*?\S) x(\d{1,5})\s*(?:,|$)`)
)

// layers reads a layer from each line. The price of the last line goes on to the base of a triangle.
func (t *form) layers(base int) (layers []client.LayerDraft) {
	t.parts = make(map[string][]string)
	for i, line := range strings.Split(t.text("/layers"), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		m := layerLine.FindStringSubmatch(line)
		if m == nil || strings.TrimSpace(prizeText.ReplaceAllString(m[5], "")) != "" {
			t.mark("/layers", fmt.Sprintf("line %d is not like: 30 | Row A | 1500 | aisles 10,20 | Gold x1, Silver x2", i+1))
			continue
		}
		layer := client.LayerDraft{Layer: len(layers) + 1, Label: strings.TrimSpace(m[2])}
		if layer.Positions, _ = strconv.Atoi(m[1]); m[1] == "" && base > 0 {
			layer.Positions = layer.Layer
		}
		layer.Price, _ = strconv.ParseInt(m[3], 10, 64) // digits
		for column := range strings.FieldsFuncSeq(m[4], func(r rune) bool { return r == ',' || r == ' ' }) {
			n, _ := strconv.Atoi(column) // too large: the API refuses it
			layer.Aisles = append(layer.Aisles, n)
		}
		for _, prize := range prizeText.FindAllStringSubmatch(m[5], -1) {
			n, _ := strconv.Atoi(prize[2])
			layer.Prizes = append(layer.Prizes, client.PrizeGroup{Name: prize[1], Count: n})
		}
		layers, t.parts["/layers"] = append(layers, layer), append(t.parts["/layers"], fmt.Sprintf("line %d", i+1))
	}
	for n := len(layers); n > 0 && n < min(base, shape.MaxBaseLength); n++ {
		layers = append(layers, client.LayerDraft{Layer: n + 1, Positions: n + 1, Price: layers[n-1].Price})
		t.parts["/layers"] = append(t.parts["/layers"], t.parts["/layers"][n-1])
	}
	return layers
}

// patchOf returns the members of a draft whose texts are others than they were when the form was opened: what another
// operator has changed since stays. Shape, policies and the public page are changed as a whole: what was not typed into
// is as the campaign has it.
func patchOf(typed, now map[string]string, d client.CampaignDraft, c client.Campaign) (p client.CampaignPatch, err error) {
	members, changed := membersOf(d), make(map[string]json.RawMessage)
	policies, typedPolicies := membersOf(c.Policies), membersOf(d.Policies)
	differs := func(name string) bool { return typed["was"+name] != typed[name] }
	for _, one := range draftFields() {
		if !differs(one.Name) {
			continue
		}
		member, policy, _ := strings.Cut(one.Name[1:], "/")
		changed[member] = members[member] // null, if the draft has none
		switch member {
		case "policies":
			policies[policy] = typedPolicies[policy]
			changed[member], _ = json.Marshal(policies)
		case "base_length", "layers":
			isSaved := fmt.Sprint(d.Layers) == fmt.Sprint(layersOf(c)) // by this form, which is sent again
			if !isSaved && (typed["was/layers"] != now["/layers"] || typed["was/base_length"] != now["/base_length"]) {
				return p, fault.New(fault.StateConflict, "the layers have changed since you opened the form: read them again")
			}
			changed["base_length"], changed["layers"] = members["base_length"], members["layers"]
		case "public_page", "embed_origins":
			for name, current := range map[string]any{"public_page": c.PublicPage, "embed_origins": c.EmbedOrigins} {
				if changed[name] = members[name]; !differs("/" + name) {
					changed[name], _ = json.Marshal(current)
				}
			}
		}
	}
	if len(changed) == 0 {
		return p, fault.New(fault.InvalidRequest, "Nothing differs: nothing was saved.")
	}
	body, _ := json.Marshal(changed)
	return p, json.Unmarshal(body, &p)
}

// membersOf returns the members of a document of ours, as JSON.
func membersOf(document any) (members map[string]json.RawMessage) {
	body, _ := json.Marshal(document)
	_ = json.Unmarshal(body, &members)
	return members
}

// rulesOf says what a campaign sells, at which prices, and by which rules.
func rulesOf(c client.Campaign) []fact {
	d := draftOf(&form{values: valuesOf(c), Faults: make(map[string]string)})
	d.Layers = layersOf(c) // a text may not have them as they are
	facts := summary(d)
	for _, layer := range c.Layers {
		if layer.Price < c.CardMinimum {
			return append(facts, fact{"Cards", "pay " + moneyText(c.CardMinimum, c.Currency) + " at least: a purchase that costs less fails, and some layers do"})
		}
	}
	return facts
}

func summary(d client.CampaignDraft) []fact {
	var positions, prizes int
	var lowest, highest, income int64
	for i, layer := range d.Layers {
		if i == 0 {
			lowest = layer.Price
		}
		lowest, highest = min(lowest, layer.Price), max(highest, layer.Price)
		positions, income = positions+layer.Positions, income+int64(layer.Positions)*layer.Price
		for _, prize := range layer.Prizes {
			prizes += prize.Count
		}
	}
	beacon := "as this installation does"
	if d.Policies.Beacon != nil {
		beacon = map[bool]string{true: "yes", false: "no"}[*d.Policies.Beacon]
	}
	return []fact{{"Positions", fmt.Sprintf("%d in %d layers", positions, len(d.Layers))},
		{"Prices", moneyText(lowest, d.Currency) + " to " + moneyText(highest, d.Currency)},
		{"Income if everything is sold", moneyText(income, d.Currency)}, {"Prizes", strconv.Itoa(prizes)},
		{"Sale (UTC)", utc(d.SaleStartsAt, "from the publication") + " to " + utc(d.SaleEndsAt, "no end")},
		{"Policies", fmt.Sprintf("unsold: %s; users cancel until: %s; beacon: %s; lost disputes: %s", d.Policies.Unsold, utc(d.Policies.CancellationUntil, "the end"), beacon, d.Policies.Disputes)}}
}

// utc writes a time, or what is said without one.
func utc(t time.Time, without string) string {
	if t.IsZero() {
		return without
	}
	return t.UTC().Format(time.DateTime)
}
