package token_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
)

func TestATokenSaysWhoItsBearerIs(t *testing.T) {
	t.Parallel()
	const named = "https://triprize.example/role"
	b := newBench(t, withSecret)
	other := newBench(t, func(settings *config.Tokens) { withSecret(settings); settings.RoleClaim = named })
	for _, row := range []struct {
		of      bench
		changes object
		role    token.Role
	}{
		{b, nil, token.User}, {b, object{"role": "user"}, token.User}, {b, object{"role": "public"}, token.Public},
		{b, object{"aud": []string{"another", audience}}, token.User},
		{b, object{"exp": b.clock.now().Add(time.Hour).Unix(), "padding": strings.Repeat("x", 4<<10)}, token.User},
		{other, object{named: "public", "role": "operator"}, token.Public},
	} {
		want := token.Claims{Issuer: issuer, Subject: "u-1", Role: row.role, ExpiresAt: b.clock.now().Add(time.Hour)}
		if got := row.of.believed(t, "it", row.of.hs256(t, row.changes)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	other.refused(t, "operator", other.hs256(t, object{named: "operator", "role": "user"}), "role")
	b.believed(t, "a subject of one", b.hs256(t, object{"sub": "u"}))
	if got := b.believed(t, "a subject of 128", b.hs256(t, object{"sub": strings.Repeat("ß", 128), "exp": 253402300799})); got.ExpiresAt.Year() != 9999 {
		t.Errorf("got %+v", got)
	}
}

func TestClaimsThatAreNotGoodEnough(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSecret)
	now := b.clock.now()
	cases := map[string]struct {
		changes object
		reason  string
	}{
		"no issuer":                {object{"iss": nil}, "missing"},
		"another issuer":           {object{"iss": "https://issuer.example.evil/"}, "iss"},
		"a list of issuers":        {object{"iss": []string{issuer}}, "type"},
		"no audience":              {object{"aud": nil}, "missing"},
		"another audience":         {object{"aud": "another"}, "aud"},
		"an empty audience":        {object{"aud": ""}, "missing"},
		"no expiry":                {object{"exp": nil}, "missing"},
		"an expiry in other case":  {object{"exp": nil, "EXP": now.Add(time.Hour).Unix()}, "missing"},
		"an expiry in words":       {object{"exp": now.Add(time.Hour).Format(time.RFC3339)}, "type"},
		"an expiry beyond time":    {object{"exp": 1e300}, "date"},
		"an expiry in year 10000":  {object{"exp": 253402300800}, "date"},
		"a start before time":      {object{"nbf": -1e300}, "date"},
		"made beyond time":         {object{"iat": 1e300}, "date"},
		"expired":                  {object{"exp": now.Add(-time.Hour).Unix()}, "expired"},
		"expired, and not for us":  {object{"exp": now.Add(-time.Hour).Unix(), "aud": "another"}, "aud"},
		"expired, and no user's":   {object{"exp": now.Add(-time.Hour).Unix(), "role": "operator"}, "role"},
		"not yet valid":            {object{"nbf": now.Add(time.Hour).Unix()}, "nbf"},
		"made in the future":       {object{"iat": now.Add(10 * time.Minute).Unix()}, "iat"},
		"no subject":               {object{"sub": nil}, "sub"},
		"an empty subject":         {object{"sub": ""}, "sub"},
		"a number for a subject":   {object{"sub": 7}, "sub"},
		"a subject of 129":         {object{"sub": strings.Repeat("ß", 129)}, "sub"},
		"a subject with a line":    {object{"sub": "u-1\nrole: operator"}, "sub"},
		"a subject with a zero":    {object{"sub": "u-1\x00"}, "sub"},
		"a subject with a C1 sign": {object{"sub": "u-1\u0085"}, "sub"},
		"a subject without form":   {object{"sub": "u-\uFFFD"}, "sub"},
		"an operator":              {object{"role": "operator"}, "role"},
		"an empty role":            {object{"role": ""}, "role"},
		"a list of roles":          {object{"role": []string{"user"}}, "role"},
	}
	for _, name := range sorted(cases) {
		b.refused(t, name, b.hs256(t, cases[name].changes), cases[name].reason)
	}
}

// The clocks may differ by the leeway, not by a second more.
func TestTheLeewayHasTwoEdges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claim         string
		inside, first time.Duration // from the claim's time: the last moment that is good, the first that is not
		reason        string
	}{
		"expiry": {"exp", leeway - time.Nanosecond, leeway, "expired"},
		"start":  {"nbf", -leeway, -leeway - time.Nanosecond, "nbf"},
		"made":   {"iat", -leeway, -leeway - time.Nanosecond, "iat"},
	} {
		b := newBench(t, withSecret)
		at := b.clock.now()
		raw := b.hs256(t, object{c.claim: at.Unix()})
		b.clock.move(c.inside)
		b.believed(t, name+" inside", raw)
		b.clock.move(at.Add(c.first).Sub(b.clock.now()))
		b.refused(t, name+" outside", raw, c.reason)
	}
}

func TestATokenIsNotForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(settings *config.Tokens) { withSecret(settings); settings.MaxLifetime = 24 * time.Hour })
	now := b.clock.now()
	after := func(d time.Duration) int64 { return now.Add(d).Unix() }
	b.believed(t, "a day from now", b.hs256(t, object{"exp": after(24*time.Hour + leeway)}))
	b.refused(t, "more than a day from now", b.hs256(t, object{"exp": after(24*time.Hour + leeway + time.Second)}), "lifetime")
	b.believed(t, "a day, made an hour ago", b.hs256(t, object{"iat": after(-time.Hour), "exp": after(23*time.Hour + leeway)}))
	b.refused(t, "more than a day, made an hour ago", b.hs256(t, object{"iat": after(-time.Hour), "exp": after(23*time.Hour + leeway + time.Second)}), "lifetime")
	free := newBench(t, withSecret)
	free.believed(t, "without a bound", free.hs256(t, object{"exp": after(5 * 365 * 24 * time.Hour)}))
}

func TestTheClientIsTheSubjectOfAnIssuer(t *testing.T) {
	t.Parallel()
	const known = "jwt:7bFRbLQ8YTPikoNckx51Ho1Epe3w4Y8TnVq1R3OUdm4" // changing it would forget every idempotency key
	if got := (token.Claims{Issuer: "i", Subject: "s"}).Client(); got != known {
		t.Errorf("the client of subject s of issuer i is %s", got)
	}
	ofKeys := regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	seen := make(map[string]token.Claims)
	for _, c := range []token.Claims{
		{Issuer: "i", Subject: "s"}, {Issuer: "i", Subject: "t"}, {Issuer: "j", Subject: "s"}, {Issuer: "is", Subject: ""}, {Issuer: "", Subject: "is"},
		{Issuer: "1:i", Subject: "s"}, {Issuer: "i1", Subject: ":s"}, {Issuer: strings.Repeat("i", 255), Subject: strings.Repeat("ß", 128)}, {Subject: "system"},
	} {
		client := c.Client()
		if other, taken := seen[client]; taken {
			t.Errorf("%+v and %+v are both %s", c, other, client)
		}
		seen[client] = c
		if len(client) != 47 || ofKeys.MatchString(client) {
			t.Errorf("%+v is %s", c, client)
		}
		later := c
		later.ExpiresAt, later.Role = time.Now(), token.Public
		if later.Client() != client {
			t.Errorf("%+v is another client with another token", c)
		}
	}
}
