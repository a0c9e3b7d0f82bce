package openapi

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"triprize/api"
	"triprize/internal/domain/fault"
)

// operation returns an operation of the contract.
func operation(t *testing.T, id string) *Operation {
	t.Helper()
	d, err := Load(api.OpenAPI, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Operations {
		if d.Operations[i].ID == id {
			return &d.Operations[i]
		}
	}
	t.Fatal("there is no operation " + id)
	return nil
}

// purchase is a body with some positions.
func purchase(positions string) string {
	return `{"user_id":"a","selection":{"positions":[` + positions + `]},"payment":{"method":"external"}}`
}

// list writes an element n times.
func list(element string, n int) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

func TestBoundsComeBeforeElementsAndFaultsAreFew(t *testing.T) {
	t.Parallel()
	buy, create := operation(t, "requestPurchase"), operation(t, "createCampaign")
	campaign := func(layers string) string {
		return `{"name":"n","base_length":3,"currency":"JPY","layers":[` + layers + `]}`
	}
	for name, c := range map[string]struct {
		o       *Operation
		body    string
		pointer string // of the first fault
		detail  string
		faults  int
	}{
		"too many zeros":               {buy, purchase(list("0", 500_000)), "/selection/positions", "must have at most 1000 elements", 1},
		"too many, and all wrong":      {buy, purchase(list(`{"layer":1e400}`, 1001)), "/selection/positions", "must have at most 1000 elements", 1},
		"as many as may be, wrong":     {buy, purchase(list("0", 1000)), "/selection/positions", "the same element twice", maxFaults},
		"an array for an object":       {buy, `{"user_id":"a","selection":[` + list("0", 400_000) + `],"payment":{"method":"wallet"}}`, "/selection", "must be object, not array", 1},
		"an object for a text":         {buy, `{"user_id":{"a":1},"selection":{},"payment":{}}`, "/user_id", "must be string, not object", 1},
		"a fault, and one place twice": {buy, strings.Replace(purchase(`{"layer":1,"column":1},{"column":1,"layer":1}`), `"a"`, `""`, 1), "/selection/positions", "the same element twice", 2},
		"unknown fields":               {buy, `{"x":[0],"y":{"z":1e400},"selection":{"quantity":0},"payment":{"method":"wallet"}}`, "/selection/quantity", "must be at least 1", 4},
		"unknown fields and others":    {buy, `{"x":[0],"selection":{"quantity":0},"payment":{"method":"wallet"}}`, "/selection/quantity", "must be at least 1", 3},
		"an unknown field is large":    {buy, `{"x":[` + list("0", shortBody) + `],"selection":{"quantity":0}}`, "/x", "is not a known field", 1},
		"faults and a line end":        {buy, purchase(list("1e999", 30)) + "\n", "/selection/positions/0", "is too large", maxFaults},
		"many unknown fields":          {buy, `{` + unknown(5000) + `}`, "/f0", "is not a known field", maxFaults},
		"one field often":              {buy, `{` + list(`"user_id":"a"`, 9000) + `}`, "/user_id", "was sent twice", maxFaults},
		"a field twice, escaped":       {buy, `{"user_id":"a","user\u005fid":"b"}`, "/user_id", "was sent twice", 1},
		"a long name":                  {buy, `{"` + strings.Repeat("n", 5000) + `":1}`, "", "name that is too long", 1},
		"a long text":                  {buy, `{"user_id":"` + strings.Repeat("ä", 129) + `"}`, "/user_id", "must have at most 128 characters", 1},
		"a long text where no text":    {buy, `{"payment":{"method":"` + strings.Repeat("a", 2000) + `"}}`, "/payment/method", "must have at most 1024 characters", 1},
		"deep":                         {buy, `{"user_id":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`, "/user_id", "must be string, not array", 1},
		"many layers of nothing":       {create, campaign(list(`{}`, 1000)), "/layers/0/layer", "is required", maxFaults},
		"many prizes of nothing":       {create, campaign(list(`{"layer":1,"price":1,"prizes":[`+list("{}", 200)+`]}`, 1000)), "/layers/0/prizes/0/count", "is required", maxFaults},
		"one wrong price of many":      {create, campaign(list(`{"layer":1,"price":1}`, 998) + `,{"layer":1,"price":0}`), "/layers/998/price", "must be at least 1", 1},
		"one field missing of many":    {create, strings.Replace(campaign(list(`{"layer":1,"price":1}`, 998)), `"name":"n",`, "", 1), "/name", "is required", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, faults, err := c.o.ReadBody([]byte(c.body), nil)
			if err != nil || len(faults) != c.faults || faults[0].Pointer != c.pointer || !strings.Contains(faults[0].Detail, c.detail) {
				t.Errorf("%d faults: %.200v, %v", len(faults), faults, err)
			}
		})
	}
}

func unknown(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":{}`, i)
	}
	return strings.Join(fields, ",")
}

// A text may have two faults at once, the last of which would exceed the bound.
func TestFaultsDoNotExceedTheirBound(t *testing.T) {
	t.Parallel()
	text := &rule{kind: "string", min: 2, max: 9, pattern: regexp.MustCompile("^x+$")}
	texts := &rule{kind: "array", min: 3, max: 99, element: text}
	o := &Operation{body: &rule{kind: "object", max: 9, fields: map[string]*rule{"a": texts, "b": text, "c": {kind: "array", min: 3, max: 9, element: texts}}}}
	_, _, faults, err := o.ReadBody([]byte(`{"a":[1,`+list(`""`, 9)+`],"b":"","c":[["",""]]}`), nil)
	if err != nil || len(faults) != maxFaults {
		t.Errorf("%d faults, want %d: %v", len(faults), maxFaults, err)
	}
}

// What is looked at before anything is made of a body must cost next to nothing: this
// counts what is allocated for a megabyte that is refused.
func TestARefusedMegabyteCostsNoMemory(t *testing.T) {
	o := operation(t, "requestPurchase")
	for name, body := range map[string]string{
		"zeros": purchase(list("0", 500_000)), "objects": purchase(list("{}", 300_000)), "deep": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"unknown": `{"x":[` + list("{}", 300_000) + `]}`, "a text": `{"user_id":"` + strings.Repeat("a", 1<<20) + `"}`, "escapes": `{"user_id":"` + strings.Repeat(`\u0061`, 1<<17) + `"}`,
		"a number": `{"user_id":` + strings.Repeat("9", 1<<20) + `}`, "twice": `{` + list(`"user_id":1`, 80_000) + `}`,
	} {
		sent := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, faults, err := o.ReadBody(sent, nil)
		runtime.ReadMemStats(&after)
		if err == nil && len(faults) == 0 {
			t.Errorf("%s passes", name)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		if allocated > 1<<19 { // a step for each of 1000 elements
			t.Errorf("%s: %d kB for a body of %d kB", name, allocated>>10, len(body)>>10)
		}
	}
}

func TestNumbersThatWouldChangeAreRefused(t *testing.T) {
	t.Parallel()
	o := operation(t, "creditWallet")
	for number, becomes := range map[string]string{
		"1": "1", "1.0": "1", "1e2": "100", "100E-2": "1", "10.00e+1": "100", "1000000000000": "1000000000000", "0.1e1": "1", "12345678901e-0": "12345678901", "1E00000000000000000000000000002": "100",
		"0.99999999999999999999": "", "1.00000000000000000001": "", "9007199254740993": "", "0.30000000000000004441": "", "1e400": "", "-1e400": "", "1e-400": "", "1e999999999999999999999": "", "1e-99999999999999999999": "",
		"123456789012345678": "", "0.10000000000000000000000001": "", strings.Repeat("1", 65): "", "1." + strings.Repeat("0", 70): "",
	} {
		canonical, _, faults, err := o.ReadBody([]byte(`{"amount":`+number+`}`), nil)
		switch {
		case err != nil:
			t.Errorf("%s: %v", number, err)
		case becomes != "" && (len(faults) > 0 || string(canonical) != `{"amount":`+becomes+`}`):
			t.Errorf("%s becomes %s: %v", number, canonical, faults)
		case becomes == "" && (len(faults) != 1 || faults[0].Pointer != "/amount" || !inexactly(faults[0])):
			t.Errorf("%s becomes %s: %v", number, canonical, faults)
		}
	}
	for _, zero := range []string{"0", "-0", "0.000", "-0e5", "0e999999999999"} { // -0 is 0, which is too little here
		if _, _, faults, err := o.ReadBody([]byte(`{"amount":`+zero+`}`), nil); err != nil || len(faults) != 1 || faults[0].Detail != "must be at least 1" {
			t.Errorf("%s: %v %v", zero, faults, err)
		}
	}
}

func inexactly(f fault.Field) bool {
	return strings.Contains(f.Detail, "cannot be represented exactly") || f.Detail == "is too large" || f.Detail == "has too many digits"
}

func TestABodyHasOneCanonicalForm(t *testing.T) {
	t.Parallel()
	const id = "01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e"
	capitals := strings.ToUpper(id)
	for name, c := range map[string]struct{ id, body, canonical string }{
		"an optional field": {"cancelPurchase", `{"reason":null}`, `{}`},
		"one of several":    {"creditWallet", `{"reference":null,"amount":5,"description":null}`, `{"amount":5}`},
		"inside":            {"requestPurchase", `{"user_id":"a","selection":{"layer":null,"quantity":1,"positions":null,"hold_id":null},"payment":{"method":"external","reference":null}}`, `{"payment":{"method":"external"},"selection":{"quantity":1},"user_id":"a"}`},
		"in elements":       {"createCampaign", `{"name":"n","base_length":3,"currency":"JPY","layers":[{"layer":1,"price":1,"prizes":null}],"purchase_limit":null,"policies":{"cancellation_until":null}}`, `{"base_length":3,"currency":"JPY","layers":[{"layer":1,"price":1}],"name":"n","policies":{}}`},
		// of ids and times in capitals and in small letters
		"ids in capitals":           {"transfer", `{"from":"` + capitals + `","to":"` + id + `","amount":1}`, `{"amount":1,"from":"` + id + `","to":"` + id + `"}`},
		"ids, and not other texts":  {"transfer", `{"from":"` + capitals + `","to":"` + id + `","amount":1,"description":"ABC","reference":null}`, `{"amount":1,"description":"ABC","from":"` + id + `","to":"` + id + `"}`},
		"an id inside":              {"requestPurchase", `{"user_id":"A","selection":{"hold_id":"` + capitals + `"},"payment":{"method":"wallet"}}`, `{"payment":{"method":"wallet"},"selection":{"hold_id":"` + id + `"},"user_id":"A"}`},
		"a time in small letters":   {"patchCampaign", `{"sale_ends_at":"2030-01-01t00:00:00z","sale_starts_at":null}`, `{"sale_ends_at":"2030-01-01T00:00:00Z","sale_starts_at":null}`},
		"a character in two halves": {"cancelPurchase", `{"reason":"\ud83d\ude00"}`, `{"reason":"😀"}`},
		"of a PATCH, which empties": {"patchCampaign", `{"purchase_limit":null}`, `{"purchase_limit":null}`},
	} {
		canonical, _, faults, err := operation(t, c.id).ReadBody([]byte(c.body), nil)
		if err != nil || len(faults) > 0 || string(canonical) != c.canonical {
			t.Errorf("%s: %s %v %v", name, canonical, faults, err)
		}
	}
	for _, half := range []string{`{"reason":"\ud83d"}`, `{"reason":"a\ude00b"}`} { // of a character
		if canonical, _, faults, err := operation(t, "cancelPurchase").ReadBody([]byte(half), nil); canonical != nil || len(faults) > 0 || err == nil {
			t.Errorf("%s is %s: %v", half, canonical, faults)
		}
	}
	for name, c := range map[string]struct{ id, body, pointer string }{
		"a field that is needed":      {"creditWallet", `{"amount":null}`, "/amount"},
		"an element":                  {"requestPurchase", purchase("null"), "/selection/positions/0"},
		"an unknown field":            {"creditWallet", `{"amount":1,"x":null}`, "/x"},
		"all that was there":          {"requestPurchase", `{"user_id":"a","selection":{"layer":null},"payment":{"method":"external"}}`, "/selection"},
		"a name of a PATCH":           {"patchCampaign", `{"name":null}`, "/name"},
		"the prizes in a PATCH":       {"patchCampaign", `{"layers":[{"layer":1,"price":1,"prizes":null}]}`, "/layers/0/prizes"},
		"the whole of an empty thing": {"cancelPurchase", `null`, ""},
	} {
		if _, _, faults, err := operation(t, c.id).ReadBody([]byte(c.body), nil); err != nil || len(faults) != 1 || faults[0].Pointer != c.pointer {
			t.Errorf("%s: %v %v", name, faults, err)
		}
	}
}

func TestAServerMayAllowFewerElementsThanTheContract(t *testing.T) {
	t.Parallel()
	o, most := operation(t, "requestPurchase"), map[string]int{"/selection/positions": 2}
	place := func(n int) string { // distinct ones
		return purchase(strings.Join([]string{`{"number":1}`, `{"number":2}`, `{"number":3}`}[:n], ","))
	}
	if _, _, faults, err := o.ReadBody([]byte(place(3)), most); err != nil || len(faults) != 1 || faults[0] != (fault.Field{Pointer: "/selection/positions", Detail: "must have at most 2 elements"}) {
		t.Error(faults, err)
	}
	if _, _, faults, err := o.ReadBody([]byte(place(1)), most); err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
	d, err := Load([]byte(strange), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, faults, err := d.Operations[0].ReadBody([]byte(`{"few":[1,2,3]}`), map[string]int{"/few": 5}); err != nil || len(faults) != 1 { // but not more
		t.Error(faults, err)
	}
}

func TestThePublicDocumentHasNothingOfOurGeneratorsAndTheWantedOrder(t *testing.T) {
	t.Parallel()
	const source = `
info: {version: "1", title: T}
paths: {}
components:
  schemas:
    Thing:
      x-go-type: string
      properties:
        last: {type: string}
        second: {type: [string, "null"], x-order: 2, x-go-type-skip-optional-pointer: true}
        at: {example: 2026-03-25, enum: [1, 1.5, true, null]}
        first: {$ref: "#/a", x-order: 1}
      x-roles: [app]
`
	const want = `{"info":{"version":"1","title":"T"},"paths":{},"components":{"schemas":{"Thing":{"properties":{` +
		`"first":{"$ref":"#/a"},"second":{"type":["string","null"]},"last":{"type":"string"},"at":{"example":"2026-03-25","enum":[1,1.5,true,null]}},"x-roles":["app"]}}}}`
	got, err := Public([]byte(source))
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
	if _, err := Public([]byte("a: [")); err == nil {
		t.Error("what is no YAML is taken")
	}
}
