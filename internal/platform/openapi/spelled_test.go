package openapi

import (
	"strings"
	"testing"
)

func TestTextsInSmallLettersAndInCapitalsHaveOneForm(t *testing.T) {
	t.Parallel()
	const id = "01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e"
	capitals := strings.ToUpper(id)
	for _, c := range []struct{ operation, sent, want string }{
		{"transfer", `{"from":"` + capitals + `","to":"` + id + `","amount":1}`, `{"amount":1,"from":"` + id + `","to":"` + id + `"}`},
		{"transfer", `{"from":"` + capitals + `","to":"` + id + `","amount":1,"description":"ABC","reference":null}`, `{"amount":1,"description":"ABC","from":"` + id + `","to":"` + id + `"}`},
		{"requestPurchase", `{"user_id":"A","selection":{"hold_id":"` + capitals + `"},"payment":{"method":"wallet"}}`, `{"payment":{"method":"wallet"},"selection":{"hold_id":"` + id + `"},"user_id":"A"}`},
		{"patchCampaign", `{"sale_ends_at":"2030-01-01t00:00:00z","sale_starts_at":null}`, `{"sale_ends_at":"2030-01-01T00:00:00Z","sale_starts_at":null}`},
	} {
		canonical, _, faults, err := operation(t, c.operation).ReadBody([]byte(c.sent), nil)
		if err != nil || len(faults) > 0 || string(canonical) != c.want {
			t.Errorf("%s is %s, want %s: %v %v", c.sent, canonical, c.want, faults, err)
		}
	}
}

func TestHalfOfACharacterIsNoText(t *testing.T) {
	t.Parallel()
	o := operation(t, "cancelPurchase")
	for sent, want := range map[string]string{`{"reason":"\ud83d\ude00"}`: `{"reason":"😀"}`, `{"reason":"\ud83d"}`: "", `{"reason":"a\ude00b"}`: ""} {
		if canonical, _, faults, err := o.ReadBody([]byte(sent), nil); string(canonical) != want || len(faults) > 0 || (err == nil) != (want != "") {
			t.Errorf("%s is %s: %v %v", sent, canonical, faults, err)
		}
	}
}
