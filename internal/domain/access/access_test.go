package access_test

import (
	"testing"

	"triprize/internal/domain/access"
)

func TestAGrantSelectsNoMoreThanItNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grant                   access.Grant
		own, another, ofAnother bool // alice's at shop, bob's at shop, alice's at kiosk
	}{
		"none":       {access.Grant{}, false, false, false},
		"nobody":     {access.OfClient(""), false, false, false},
		"no user":    {access.OfUser("shop", ""), false, false, false},
		"everything": {access.Everything(), true, true, true},
		"an app":     {access.OfClient("shop"), true, true, false},
		"a user":     {access.OfUser("shop", "alice"), true, false, false},
	} {
		if g := c.grant; g.Sees("shop", "alice") != c.own || g.Sees("shop", "bob") != c.another || g.Sees("kiosk", "alice") != c.ofAnother || g.Sees("", "") != g.All() {
			t.Errorf("%s: %v %v %v %v", name, g.Sees("shop", "alice"), g.Sees("shop", "bob"), g.Sees("kiosk", "alice"), g.Sees("", ""))
		}
		if (c.grant.Client() == nil) != c.grant.All() {
			t.Errorf("%s: statements select the client %v", name, c.grant.Client())
		}
	}
}
