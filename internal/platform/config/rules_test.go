package config

import (
	"slices"
	"strings"
	"testing"
)

// Every value that may be secret is hunter2 here: no reason repeats it.
func TestPaymentsAreRefusedWithNameAndReason(t *testing.T) {
	const key, secret, stripe = "key: sk_test_hunter2", "webhook_secret: whsec_hunter2hunter2", "allow_test: true\n  stripe:\n    "
	section(t, "payments", map[string]row{
		"a test key in production":  {file: "stripe: {key: sk_test_hunter2}", want: []string{"payments.stripe.key (TRIPRIZE_PAYMENTS_STRIPE_KEY): is a test key"}},
		"restricted, for tests":     {file: "stripe: {key: rk_test_hunter2, url: \"https://sandbox.example\"}", want: []string{"payments.allow_test"}},
		"a test key":                {file: stripe + key},
		"a restricted key":          {file: stripe + "key: rk_live_hunter2"},
		"a live key at Stripe":      {file: stripe + "key: sk_live_hunter2\n    url: https://api.stripe.com"},
		"no section":                {file: stripe + ""},
		"a sandbox here":            {file: stripe + key + "\n    url: http://127.0.0.1:4711"},
		"a sandbox here, by IPv6":   {file: stripe + key + "\n    url: http://[::1]:4711/"},
		"a sandbox elsewhere":       {file: stripe + key + "\n    url: https://sandbox.example:4711"},
		"two secrets":               {file: stripe + secret + " , whsec_hunter2hunter3"},
		"a publishable key":         {file: stripe + "key: pk_test_hunter2", want: []string{"setting payments.stripe.key (TRIPRIZE_PAYMENTS_STRIPE_KEY): must be a secret or restricted key"}},
		"a prefix only":             {file: stripe + "key: sk_test_", want: []string{"payments.stripe.key"}},
		"a key with a blank":        {file: stripe + "key: sk_test_hunter2 hunter2", want: []string{"payments.stripe.key"}},
		"a live key in a sandbox":   {file: stripe + "key: sk_live_hunter2\n    url: http://127.0.0.1:4711", want: []string{"payments.stripe.url (TRIPRIZE_PAYMENTS_STRIPE_URL): is refused with a live key"}},
		"a live restricted key":     {file: stripe + "key: rk_live_hunter2\n    url: https://sandbox.example", want: []string{"is refused with a live key"}},
		"a live key, not encrypted": {file: stripe + "key: sk_live_hunter2\n    url: http://api.stripe.com", want: []string{"payments.stripe.url (TRIPRIZE_PAYMENTS_STRIPE_URL): must be a server"}},
		"a sandbox, not encrypted":  {file: stripe + key + "\n    url: http://hunter2.example", want: []string{"must be https://"}},
		"a sandbox by name":         {file: stripe + key + "\n    url: http://127.0.0.1.hunter2.example", want: []string{"must be https://"}},
		"a URL with a password":     {file: stripe + key + "\n    url: https://user:hunter2@sandbox.example", want: []string{"a server and nothing more"}},
		"a URL with a path":         {file: stripe + key + "\n    url: https://sandbox.example/hunter2", want: []string{"a server and nothing more"}},
		"no URL":                    {file: stripe + key + "\n    url: \"hunter2:\"", want: []string{"payments.stripe.url"}},
		"a short secret":            {file: stripe + "webhook_secret: hunter2", want: []string{"payments.stripe.webhook_secret (TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET): must be one or more secrets"}},
		"nothing beside a comma":    {file: stripe + secret + ",", want: []string{"payments.stripe.webhook_secret"}},
		"not an account":            {file: stripe + "account: hunter", want: []string{"payments.stripe.account (TRIPRIZE_PAYMENTS_STRIPE_ACCOUNT): must begin with acct_"}},
		"other methods":             {file: stripe + "payment_method_types: card , ideal"},
		"no methods":                {file: stripe + "payment_method_types: \"\"", want: []string{"payments.stripe.payment_method_types (TRIPRIZE_PAYMENTS_STRIPE_PAYMENT_METHOD_TYPES): must be one or more types"}},
		"no method":                 {file: stripe + "payment_method_types: Cards", want: []string{"payments.stripe.payment_method_types"}},
		"no rate":                   {file: stripe + "rate: 0", want: []string{"payments.stripe.rate"}},
		"unknown":                   {file: stripe + "keys: hunter2", want: []string{"unknown setting payments.stripe.keys"}},
		"too short a reservation":   {file: "reservation: 900ms", want: []string{"payments.reservation"}},
		"too long a reservation":    {file: "reservation: 25h", want: []string{"payments.reservation"}},
		"no place to return to":     {file: "return_url: hunter2", want: []string{"payments.return_url (TRIPRIZE_PAYMENTS_RETURN_URL): must be an http:// or https:// URL"}},
		"one connection":            {file: "max_connections: 1", want: []string{"payments.max_connections"}},
		"a scalar for a section":    {file: "stripe: 7", want: []string{"unknown setting payments.stripe"}},
	})
}

func TestASettingOfASectionInASectionComesFromTheEnvironmentToo(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_KEY", "sk_test_a")
	t.Setenv("TRIPRIZE_PAYMENTS_ALLOW_TEST", "true")
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_RATE", "7")
	s, err := Load(write(t, "payments:\n  stripe:\n    account: acct_1\n    rate: 9\n"))
	if err != nil || s.Payments.Stripe.Key != "sk_test_a" || s.Payments.Stripe.Rate != 7 || s.Payments.Stripe.Account != "acct_1" {
		t.Errorf("got %+v, %v", s.Payments.Stripe, err)
	}
}

func TestAKeyWithoutAWebhookSecretIsRefusedWhereWebhooksArrive(t *testing.T) {
	if err := (Stripe{Key: "sk_test_a"}).CheckWebhooks(); err == nil || !strings.Contains(err.Error(), "setting payments.stripe.webhook_secret (TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET): is required") {
		t.Errorf("got %v", err)
	}
	for _, s := range []Stripe{{}, {Key: "sk_test_a", WebhookSecret: "whsec_1"}, {WebhookSecret: "whsec_1"}} {
		if err := s.CheckWebhooks(); err != nil {
			t.Error(err)
		}
	}
	if got := (Stripe{WebhookSecret: "a, b"}).WebhookSecrets(); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("got %q", got)
	}
}

// quicknetInfo is what relays of drand answer at /info, but for fields that nobody reads.
const quicknetInfo = `{"public_key":"83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",` +
	`"period":3,"genesis_time":1692803367,"hash":"52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",` +
	`"groupHash":"f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e","schemeID":"bls-unchained-g1-rfc9380","metadata":{"beaconID":"quicknet"}}`

func TestTheSettingsOfABeaconFitTogether(t *testing.T) {
	const off = "default: false\n  "
	section(t, "beacon", map[string]row{
		"no relays":                  {file: off + "relays: ''"},
		"blank relays":               {file: off + "relays: ' '"},
		"no relays, but the default": {file: "relays: ''", want: []string{"beacon.default (TRIPRIZE_BEACON_DEFAULT)", "beacon.relays names no relay"}},
		"one relay":                  {file: "relays: https://one.example"},
		"relays with paths":          {file: "relays: ' https://one.example/drand/ , https://two.example:8443 '"},
		"on this machine":            {file: "relays: 'http://127.0.0.1:1,http://localhost:2,http://[::1]:3'"},
		"elsewhere, without TLS":     {file: "relays: http://one.example", want: []string{"beacon.relays", "must be https://"}},
		"another scheme":             {file: "relays: ftp://one.example", want: []string{"beacon.relays", "URLs separated by commas"}},
		"an empty one":               {file: "relays: 'https://one.example,'", want: []string{"beacon.relays", "URLs separated by commas"}},
		"one twice":                  {file: "relays: 'https://one.example,https://one.example/'", want: []string{"beacon.relays", "different"}},
		"with a password":            {file: "relays: https://me:hunter2@one.example", want: []string{"beacon.relays", "without a user"}},
		"with a query":               {file: "relays: 'https://one.example?x=1'", want: []string{"beacon.relays"}},
		"seventeen":                  {file: "relays: 'https://" + strings.Repeat("x.example,https://", 16) + "y.example'", want: []string{"beacon.relays", "at most 16"}},
		"quicknet, in full":          {file: "chain: '" + quicknetInfo + "'"},
		"another period":             {file: "chain: '" + strings.Replace(quicknetInfo, `"period":3`, `"period":30`, 1) + "'", want: []string{"beacon.chain (TRIPRIZE_BEACON_CHAIN)", "are those of the chain"}},
		"half a second more":         {file: "chain: '" + strings.Replace(quicknetInfo, `"period":3`, `"period":3.5`, 1) + "'", want: []string{"beacon.chain", "/info"}},
		"another genesis":            {file: "chain: '" + strings.Replace(quicknetInfo, "1692803367", "1692803368", 1) + "'", want: []string{"beacon.chain", "are those of the chain"}},
		"another name":               {file: "chain: '" + strings.Replace(quicknetInfo, `"quicknet"`, `"default"`, 1) + "'", want: []string{"are those of the chain"}},
		"another seed":               {file: "chain: '" + strings.Replace(quicknetInfo, "f477", "f478", 1) + "'", want: []string{"are those of the chain"}},
		"half a seed":                {file: "chain: '" + strings.Replace(quicknetInfo, "f477d5c89f21a17c863a7f937c6a6d15", "", 1) + "'", want: []string{"32 bytes, not 16"}},
		"no key":                     {file: "chain: '" + strings.Replace(quicknetInfo, "83cf", "00cf", 1) + "'", want: []string{"beacon.chain"}},
		"a key that is no hex":       {file: "chain: '" + strings.Replace(quicknetInfo, "83cf", "quic", 1) + "'", want: []string{"public_key must be hex digits"}},
		"no chain":                   {file: "chain: quicknet", want: []string{"beacon.chain", "must be JSON"}},
	})
	want := []string{"https://one.example/drand", "https://two.example:8443"}
	if got := (Beacon{Relays: " https://one.example/drand/ , https://two.example:8443 "}).URLs(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestOriginsAreNamedOneByOneAndInFull(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "https://shop.example", "https://shop.example:8443,https://a.shop.example", "https://a.example , http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80", "http://localhost:*,http://[::1]:*"} {
		if !areOrigins(good, "") {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"*", "https://*.shop.example", "https://shop.example,*", "null", "https://", "shop.example", "https://shop.example/", "https://shop.example/app",
		"https://Shop.example", "https://me@shop.example", "https://shop.example?x", "https://a.example,", "http://shop.example", "ftp://shop.example",
		"https://shop.example:*", "http://shop.example:*", "https://localhost:*", "http://localhost:80:*", "http://*:*", strings.Repeat("https://a.example,", 64) + "https://b.example",
	} {
		if areOrigins(bad, "") {
			t.Errorf("%.40q is accepted", bad)
		}
	}
}

func TestAnAddressToListenOnMayBeOfIPv6(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"127.0.0.1:8080": true, "[::1]:8080": true, "[fe80::1%eth0]:8080": true, ":8080": true, "localhost:1": true, "api-1.example:65535": true,
		"::1:8080": false, "[::g]:8080": false, "8080": false, "[::1]": false, "127.0.0.1:0": false, "127.0.0.1:65536": false, "a_b:1": false, "http://a:1": false, "": false,
	} {
		if got := isListen(text, ""); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAnOriginOfThisMachineMayStandForEachPort(t *testing.T) {
	t.Parallel()
	api := API{CORSOrigins: "https://shop.example, http://localhost:*"}
	for origin, want := range map[string]bool{
		"https://shop.example": true, "http://localhost:3000": true, "http://localhost:51730": true,
		"https://shop.example:3000": false, "https://localhost:3000": false, "http://localhost": false, "http://localhost:": false,
		"http://localhost:3000.evil.example": false, "http://127.0.0.1:3000": false, "http://localhost.evil.example:3000": false, "null": false, "": false,
	} {
		if got := api.AllowsOrigin(origin); got != want {
			t.Errorf("%q: %v", origin, got)
		}
	}
}

func TestAccountsAreRefusedWithNameAndReason(t *testing.T) {
	const issuer, roles = "oidc:\n    issuer: https://accounts.example/realms/staff\n    client_id: triprize\n    client_secret: hunter2", "\n    roles: {operator: [ops]}"
	section(t, "console", map[string]row{
		"keys only":              {file: "sign_in: key"},
		"accounts":               {file: issuer + roles},
		"accounts and keys":      {file: issuer + roles + "\n  sign_in: both"},
		"a provider here":        {file: "oidc: {issuer: \"http://127.0.0.1:4711\", client_id: triprize, roles: {viewer: support}}"},
		"an unknown role":        {file: issuer + "\n    roles: {king: [ops]}", want: []string{"unknown setting console.oidc.roles.king"}},
		"no role":                {file: issuer, want: []string{"console.oidc.roles (TRIPRIZE_CONSOLE_OIDC_ROLES)", "nobody could sign in"}},
		"an empty group":         {file: issuer + "\n    roles: {operator: [\"\"]}", want: []string{"must not have an empty value"}},
		"a group that is none":   {file: issuer + "\n    roles: {operator: [7]}", want: []string{"console.oidc.roles.operator", "must have texts only"}},
		"groups that are none":   {file: issuer + "\n    roles: {operator: 7}", want: []string{"must be a list of texts"}},
		"no client":              {file: "oidc: {issuer: \"https://accounts.example\", roles: {operator: ops}}", want: []string{"console.oidc.client_id", "is required"}},
		"in the clear":           {file: "oidc: {issuer: \"http://accounts.example\", client_id: triprize, roles: {operator: ops}}", want: []string{"console.oidc.issuer", "must be https://"}},
		"no issuer":              {file: "sign_in: both", want: []string{"console.sign_in", "names no provider"}},
		"another way to sign in": {file: "sign_in: password", want: []string{"console.sign_in"}},
	})
}

// A list is one text with commas in the environment, and a secret is in a file.
func TestTheGroupsOfARoleComeFromTheEnvironmentToo(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR", "ops, admins")
	t.Setenv("TRIPRIZE_CONSOLE_OIDC_CLIENT_SECRET_FILE", write(t, "hunter2\n"))
	s, err := Load(write(t, "console:\n  oidc:\n    issuer: https://accounts.example\n    client_id: triprize\n    roles: {operator: [x], viewer: [support, \"a,b\"]}\n"))
	if o := s.Console.OIDC; err != nil || !slices.Equal(o.Roles.Operator, []string{"ops", "admins"}) || !slices.Equal(o.Roles.Viewer, []string{"support", "a,b"}) || o.ClientSecret != "hunter2" ||
		o.Scopes != "openid email profile" || o.RolesClaim != "groups" || !s.Console.ByAccount() || s.Console.ByKey() {
		t.Errorf("got %+v, %v", o, err)
	}
	t.Setenv("TRIPRIZE_CONSOLE_OIDC_ROLES_KING", "ops")
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), "unknown setting TRIPRIZE_CONSOLE_OIDC_ROLES_KING") {
		t.Error(err)
	}
}

func TestApprovalsAreRefusedWithNameAndReason(t *testing.T) {
	const accounts = "\nconsole:\n  oidc: {issuer: \"https://accounts.example\", client_id: triprize, roles: {operator: ops, approver: finance}}"
	section(t, "approvals", map[string]row{
		"some":                       {file: "required: [campaign.cancel, wallet.credit]\n  above: JPY 100000, EUR 1000\n  by: persons" + accounts},
		"one text with commas":       {file: "required: campaign.cancel,draw.void" + accounts},
		"an unknown name":            {file: "required: [campaign.pause]" + accounts, want: []string{"approvals.required", "campaign.cancel", `got "campaign.pause"`}},
		"nobody approves":            {file: "required: [draw.void]", want: []string{"approvals.required", "nobody could approve"}},
		"accounts do not sign in":    {file: "required: [draw.void]" + accounts + "\n  sign_in: key", want: []string{"nobody could approve"}},
		"a threshold of nothing":     {file: "required: [draw.void]\n  above: JPY 1" + accounts, want: []string{"approvals.above", "neither"}},
		"a threshold that is none":   {file: "required: [wallet.debit]\n  above: JPY" + accounts, want: []string{"approvals.above", `got "JPY"`}},
		"an amount below one":        {file: "required: [wallet.debit]\n  above: JPY 0" + accounts, want: []string{"approvals.above"}},
		"two thresholds of currency": {file: "required: [wallet.debit]\n  above: JPY 1, JPY 2" + accounts, want: []string{"approvals.above", "each once"}},
		"somebody else":              {file: "by: nobody", want: []string{"approvals.by"}},
	})
}
