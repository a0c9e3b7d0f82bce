package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"
	"github.com/redis/go-redis/v9"
)

// rules are our validation rules by name, and what a text that violates one must be; PARAM is the first word of the
// parameter. No reason repeats a text, which may be secret.
var rules = map[string]struct {
	holds  func(text, param string) bool
	reason string
}{
	"url_of":    {hasScheme, "must be a URL, PARAM://…; " + encoded},
	"one_host":  {namesOneHost, "must name one server, a replica: several hosts are for postgres.url"},
	"quorum_of": {isQuorum, "must be the URLs of an odd number of different servers, PARAM://…,PARAM://…,PARAM://…; " + encoded},
	"collector": {func(text, _ string) bool { return baseURL(text) != nil },
		"must be http://host:port or https://host/path, without user or query; a key of the collector goes into OTEL_EXPORTER_OTLP_HEADERS"},
	"secret": {hasBytes, "must have at least PARAM bytes, as from: openssl rand -base64 PARAM"},
	"client": {matches(`[a-z0-9][a-z0-9._-]{0,63}`), // as package key has it
		"must be the client of an API key: 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"},
	"origins": {areOrigins, "must be at most 64 origins in lower case, separated by commas, such as https://shop.example: scheme, host, and the port " +
		"if it is not the usual one; no path, and no *, with which every page could call the API; http:// and the port * only on this machine"},
	"stripe_key": {matches(`[rs]k_(test|live)_[!-~]+`), "must be a secret or restricted key of Stripe: sk_test_…, rk_test_…, sk_live_… or rk_live_…"},
	"server":     {isServer, "must be a server and nothing more, https://host:port; " + httpsOnly},
	"webhook_secrets": {areAll(`[!-~]{16,}`, 0, math.MaxInt), // Stripe's have 38
		"must be one or more secrets of at least 16 bytes, whsec_…, separated by commas"},
	"method_types": {areAll(`[a-z][a-z0-9_]*`, 1, math.MaxInt), "must be one or more types of payment methods as Stripe spells them, separated by commas, such as card"},
	"networks":     {areNetworks, "must be networks like 10.0.0.0/8, separated by commas"},
	"draw_keys":    {areAll(`[0-9a-fA-F]{64}`, 0, 8), "must be at most 8 keys of 64 hex digits, separated by commas"}, // package keyring reads them
	"listen":       {holds: isListen},
	"relays":       {areRelays, "must be at most 16 different URLs separated by commas, https://host or https://host/path, without a user, a query or a fragment; " + httpsOnly},
}

// check checks all settings, and then those that depend on each other.
func check(settings Settings) error {
	v := validator.New(validator.WithRequiredStructEnabled())
	for name, rule := range rules {
		if err := v.RegisterValidation(name, func(f validator.FieldLevel) bool { return rule.holds(f.Field().String(), f.Param()) }); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
	}
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("mapstructure") })
	err := v.Struct(settings)
	if err == nil {
		return errors.Join(checkRedis(settings.Redis), checkStripe(settings.Payments), checkBeacon(settings.Beacon), checkConsole(settings.Console), checkApprovals(settings.Approvals, settings.Console), checkBooks(settings.Books))
	}
	var failed validator.ValidationErrors
	if !errors.As(err, &failed) {
		return fmt.Errorf("settings: %w", err)
	}
	var all []error
	for _, f := range failed {
		_, key, _ := strings.Cut(f.Namespace(), ".")
		all = append(all, fault(key, "%s", reason(f)))
	}
	return errors.Join(all...)
}

// checkStripe rejects test keys unless they are allowed, because with one purchases cost nothing.
func checkStripe(p Payments) error {
	switch s := p.Stripe; {
	case s.Enabled() && !s.Live() && !p.AllowTest:
		return fault("payments.stripe.key", "is a test key: purchases by card would cost nothing. For development set payments.allow_test (TRIPRIZE_PAYMENTS_ALLOW_TEST)")
	case s.Live() && s.URL != "" && strings.TrimRight(s.URL, "/") != "https://api.stripe.com":
		return fault("payments.stripe.url", "is refused with a live key, which is for Stripe itself: leave the URL empty")
	}
	return nil
}

func checkConsole(c Console) error {
	issuer := baseURL(c.OIDC.Issuer)
	switch roles := c.OIDC.Roles; {
	case c.OIDC.Issuer != "" && (issuer == nil || isPlain(issuer)):
		return fault("console.oidc.issuer", "%s", "must be a URL without user, query and fragment; "+httpsOnly)
	case slices.Contains(slices.Concat(roles.Operator, roles.Approver, roles.Viewer), ""):
		return fault("console.oidc.roles", "must not have an empty value")
	case c.OIDC.Issuer == "" && (c.SignIn == "oidc" || c.SignIn == "both"):
		return fault("console.sign_in", "is %s, but console.oidc.issuer names no provider of accounts", c.SignIn)
	case c.OIDC.Issuer != "" && len(roles.Operator)+len(roles.Approver)+len(roles.Viewer) == 0:
		return fault("console.oidc.roles", "give no role to any value of the claim %s, so nobody could sign in", c.OIDC.RolesClaim)
	}
	return nil
}

func checkBooks(b Books) error {
	if _, ok := b.Numbers(); !ok {
		return fault("books.accounts", "must be accounts, each once with a number of at most 50 characters, separated by commas, such as receivable=1210,sales=4000, of %s; got %q", strings.Join(Accounts, ", "), b.Accounts)
	}
	return nil
}

func checkApprovals(a Approvals, c Console) error {
	for _, name := range a.Required {
		if !slices.Contains(Approvable, name) {
			return fault("approvals.required", "must be some of %s; got %q", strings.Join(Approvable, ", "), name)
		}
	}
	if len(a.Required) > 0 && (!c.ByAccount() || len(c.OIDC.Roles.Approver) == 0) {
		return fault("approvals.required", "needs persons who sign in (console.oidc.issuer, console.sign_in) and console.oidc.roles.approver: nobody could approve")
	}
	if a.Above != "" && !slices.ContainsFunc(a.Required, func(name string) bool { return strings.HasPrefix(name, "wallet.") }) {
		return fault("approvals.above", "is for wallets, and approvals.required has neither wallet.credit nor wallet.debit")
	}
	_, err := a.Thresholds()
	return err
}

func checkBeacon(b Beacon) error {
	if _, err := b.Chain(); err != nil {
		return err
	}
	if b.Default && !b.Enabled() {
		return fault("beacon.default", "is true, but beacon.relays names no relay; set relays, or false")
	}
	return nil
}

// fault returns an error about one setting.
func fault(name, format string, args ...any) error {
	return fmt.Errorf("setting %s (%s): %s", name, variable(name), fmt.Sprintf(format, args...))
}

// listOf returns the elements of a comma separated list; an empty text has none.
func listOf(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// reason describes the rule that a value violates.
func reason(f validator.FieldError) string {
	if own := rules[f.Tag()]; own.reason != "" {
		first, _, _ := strings.Cut(f.Param(), " ")
		return strings.ReplaceAll(own.reason, "PARAM", first)
	}
	switch f.Tag() {
	case "required":
		return "is required"
	case "required_with":
		return "is required together with " + others(f)
	case "excluded_with":
		return "excludes " + others(f) + ": set one of them"
	case "excluded_without_all":
		return "needs " + others(f)
	case "http_url":
		return "must be an http:// or https:// URL"
	case "min":
		return fmt.Sprintf("is %v, must be at least %s", f.Value(), f.Param())
	case "max":
		return fmt.Sprintf("is %v, must be at most %s", f.Value(), f.Param())
	case "oneof":
		return fmt.Sprintf("is %q, must be one of: %s", f.Value(), f.Param())
	case "gtefield":
		return fmt.Sprintf("is %v, must be at least %s", f.Value(), others(f))
	case "ltefield":
		return fmt.Sprintf("is %v, must be at most %s", f.Value(), others(f))
	case "listen":
		return fmt.Sprintf("is %q, must be host:port, such as 127.0.0.1:8080, [::1]:8080 or :8080", f.Value())
	case "startswith":
		return "must begin with " + f.Param()
	case "hexadecimal", "len":
		return "must be 64 hex digits, as from: openssl rand -hex 32"
	default:
		return fmt.Sprintf("must satisfy %s=%s", f.Tag(), f.Param())
	}
}

// others returns the settings of the same section that a rule refers to.
func others(f validator.FieldError) string {
	path := strings.Split(f.StructNamespace(), ".") // Settings, the sections, the setting
	section := reflect.TypeFor[Settings]()
	for _, name := range path[1 : len(path)-1] {
		field, _ := section.FieldByName(name)
		section = field.Type
	}
	var names []string
	for _, field := range strings.Fields(f.Param()) {
		other, _ := section.FieldByName(field)
		names = append(names, other.Tag.Get("mapstructure"))
	}
	return strings.Join(names, " or ")
}

// matches returns a rule for texts that match a pattern as a whole.
func matches(pattern string) func(text, _ string) bool {
	whole := regexp.MustCompile("^(?:" + pattern + ")$")
	return func(text, _ string) bool { return whole.MatchString(text) }
}

// areAll returns a rule for lists of texts that match a pattern.
func areAll(pattern string, least, greatest int) func(text, _ string) bool {
	one := matches(pattern)
	return func(text, _ string) bool {
		list := listOf(text)
		return len(list) >= least && len(list) <= greatest && !slices.ContainsFunc(list, func(item string) bool { return !one(item, "") })
	}
}

// hasBytes is unlike min, which counts characters.
func hasBytes(text, least string) bool {
	n, err := strconv.Atoi(least)
	return err == nil && len(text) >= n
}

const encoded = "in its user and password percent-encode all but letters, digits and - . _ ~ (@ is %40)"

// unambiguous are the texts in which every library finds the same password. Of a@b some would take b for a part of the
// host, and errors of connections name hosts.
var unambiguous = regexp.MustCompile(`^[^@/?#\s]+//([^@/?#\s]*@)?[^@#\s]*$`)

func hasScheme(text, schemes string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Opaque == "" && unambiguous.MatchString(text) && slices.Contains(strings.Fields(schemes), u.Scheme)
}

// namesOneHost rejects a list of hosts, and one in the query.
func namesOneHost(text, _ string) bool {
	u, err := url.Parse(text)
	return err == nil && !strings.Contains(u.Host, ",") && !strings.Contains(u.Query().Get("host"), ",")
}

// isQuorum rejects an even number of servers, which tolerates no more failures than one server less, and two databases
// of one server, which are not independent.
func isQuorum(text, schemes string) bool {
	urls := listOf(text)
	servers := make(map[string]bool)
	for _, one := range urls {
		options, err := redis.ParseURL(one)
		if err != nil || !hasScheme(one, schemes) {
			return false
		}
		servers[strings.ToLower(options.Addr)] = true
	}
	return len(urls)%2 == 1 && len(servers) == len(urls)
}

var isHostName = matches(`[a-zA-Z0-9][a-zA-Z0-9-]{0,62}(\.[a-zA-Z0-9][a-zA-Z0-9-]{0,62})*`)

// isListen accepts what can be listened on. The validator's hostname_port has no IPv6.
func isListen(text, _ string) bool {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(port, 10, 16)
	_, noAddress := netip.ParseAddr(host)
	return err == nil && bad == nil && n > 0 && (host == "" || noAddress == nil || isHostName(host, ""))
}

// areNetworks rejects CIDRs with bits of a host.
func areNetworks(text, _ string) bool {
	return !slices.ContainsFunc(strings.Split(text, ","), func(one string) bool {
		one = strings.TrimSpace(one)
		prefix, err := netip.ParsePrefix(one)
		return one != "" && (err != nil || prefix != prefix.Masked())
	})
}

// anyPort is the suffix of a loopback origin that matches every port, for development servers.
const anyPort = ":*"

// areOrigins rejects texts that would match no browser's origin, and a wildcard, which would let any page use a token
// that it obtained. The list is searched for each request of a browser.
func areOrigins(text, _ string) bool {
	origins := listOf(text)
	return len(origins) <= 64 && !slices.ContainsFunc(origins, func(named string) bool {
		origin, each := strings.CutSuffix(named, anyPort)
		u := baseURL(origin)
		return u == nil || strings.Contains(origin, "*") || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) ||
			each && (u.Port() != "" || u.Scheme == "https") || isPlain(u)
	})
}

// areRelays rejects http:// to other machines: a relay cannot forge a round, but the network could withhold it.
func areRelays(text, _ string) bool {
	urls := Beacon{Relays: text}.URLs()
	for i, one := range urls {
		if u := baseURL(one); u == nil || isPlain(u) || slices.Contains(urls[:i], one) {
			return false
		}
	}
	return len(urls) <= 16
}

func isServer(text, _ string) bool {
	u := baseURL(text)
	return u != nil && strings.Trim(u.Path, "/") == "" && !isPlain(u)
}

const httpsOnly = "must be https://; http:// is for this machine only (127.0.0.1, ::1, localhost)"

// baseURL parses the address of a server, optionally with a path; nil: invalid.
func baseURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil
	}
	return u
}

// isPlain reports whether a URL is http:// to another machine.
func isPlain(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
