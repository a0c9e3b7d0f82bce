package config

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"triprize.example/draw/beacon"
)

// Settings has every setting of every process; configs/triprize.yaml documents them. Fields with mapstructure:"-" are
// set only by tests: the zero value stands for a constant of the package that uses it.
type Settings struct {
	Log       Log       `mapstructure:"log"`
	Tracing   Tracing   `mapstructure:"tracing"`
	Postgres  Postgres  `mapstructure:"postgres"`
	Redis     Redis     `mapstructure:"redis"`
	Locks     Locks     `mapstructure:"locks"`
	API       API       `mapstructure:"api"`
	Streams   Streams   `mapstructure:"streams"`
	Tokens    Tokens    `mapstructure:"tokens"`
	Console   Console   `mapstructure:"console"`
	Approvals Approvals `mapstructure:"approvals"`
	Books     Books     `mapstructure:"books"`
	Limits    Limits    `mapstructure:"limits"`
	Accept    Accept    `mapstructure:"accept"`
	Worker    Worker    `mapstructure:"worker"`
	Campaigns Campaigns `mapstructure:"campaigns"`
	Holds     Holds     `mapstructure:"holds"`
	Wallets   Wallets   `mapstructure:"wallets"`
	Payments  Payments  `mapstructure:"payments"`
	Draw      Draw      `mapstructure:"draw"`
	Beacon    Beacon    `mapstructure:"beacon"`
	Webhooks  Webhooks  `mapstructure:"webhooks"`
	Retention Retention `mapstructure:"retention"`
	Scheduler Scheduler `mapstructure:"scheduler"`
	Sweeps    Sweeps    `mapstructure:"sweeps"`
}

// ShutdownTimeout is how long a process may take to finish its work at shutdown.
const ShutdownTimeout = 15 * time.Second

// Log has the level and format of logs.
type Log struct {
	Level  string `mapstructure:"level"  validate:"oneof=debug info warn error"`
	Format string `mapstructure:"format" validate:"oneof=json text"`
}

// Tracing has the OpenTelemetry collector.
type Tracing struct {
	OTLPURL     string        `mapstructure:"otlp_url"     validate:"omitempty,collector"`
	SampleRatio float64       `mapstructure:"sample_ratio" validate:"min=0,max=1"`
	Timeout     time.Duration `mapstructure:"-"`
}

// Postgres is the database.
type Postgres struct {
	URL            string        `mapstructure:"url"                         validate:"required,url_of=postgres postgresql"`
	ReadURL        string        `mapstructure:"read_url"                    validate:"omitempty,url_of=postgres postgresql,one_host"`
	MaxConnections int32         `mapstructure:"max_connections"             validate:"min=2,max=1000"`
	StartWait      time.Duration `mapstructure:"start_wait"                  validate:"min=0,max=1h"`

	RequireSyncStandby bool `mapstructure:"require_sync_standby"`

	ConnectTimeout, StatementTimeout, LockTimeout, IdleInTransactionTimeout time.Duration `mapstructure:"-"`
}

// Locks are the locks in Redis that reduce contention in Postgres.
type Locks struct {
	Enabled                  bool          `mapstructure:"enabled"`
	RedisURLs                string        `mapstructure:"redis_urls"   validate:"omitempty,quorum_of=redis rediss unix"`
	TTL, RetryDelay, Timeout time.Duration `mapstructure:"-"`
	Tries                    int           `mapstructure:"-"`
}

// URLs returns the servers of the quorum; nil: locks use redis.url.
func (l Locks) URLs() []string { return listOf(l.RedisURLs) }

// API is the HTTP server.
type API struct {
	Listen                                                     string        `mapstructure:"listen"             validate:"required,listen"`
	MetricsListen                                              string        `mapstructure:"metrics_listen" validate:"omitempty,listen"`
	IdleTimeout                                                time.Duration `mapstructure:"idle_timeout"       validate:"min=1s,max=1h"`
	MaxConnections                                             int           `mapstructure:"max_connections"    validate:"min=1,max=1000000"`
	MaxConnectionsPerAddress                                   int           `mapstructure:"max_connections_per_address" validate:"min=0,max=1000000"`
	MaxWait                                                    time.Duration `mapstructure:"max_wait"           validate:"min=1s,max=5m"`
	TrustedProxies                                             string        `mapstructure:"trusted_proxies"    validate:"networks"`
	DrainDelay                                                 time.Duration `mapstructure:"drain_delay"        validate:"min=0,max=5m"`
	AsynqmonReadOnly                                           bool          `mapstructure:"asynqmon_read_only"`
	CORSOrigins                                                string        `mapstructure:"cors_origins"      validate:"origins"`
	BodyLimitBytes, WaitsPerUser                               int           `mapstructure:"-"`
	ReadTimeout, WriteTimeout, RequestTimeout, ShutdownTimeout time.Duration `mapstructure:"-"`
}

// Proxies returns the networks of the proxies whose X-Forwarded-For is believed.
func (a API) Proxies() (networks []netip.Prefix) {
	for _, one := range listOf(a.TrustedProxies) {
		if network, err := netip.ParsePrefix(one); err == nil { // the rule networks has checked it
			networks = append(networks, network)
		}
	}
	return networks
}

// AllowsOrigin reports whether pages of an origin may call the API from a browser.
func (a API) AllowsOrigin(origin string) bool {
	origins := listOf(a.CORSOrigins)
	host, port := origin, ""
	if at := strings.LastIndexByte(origin, ':'); at > 0 {
		if _, err := strconv.ParseUint(origin[at+1:], 10, 16); err == nil {
			host, port = origin[:at], origin[at+1:]
		}
	}
	return slices.Contains(origins, origin) || port != "" && slices.Contains(origins, host+anyPort)
}

// Streams are the event streams of campaigns and jobs.
type Streams struct {
	Interval, Heartbeat, MaxAge, Retry time.Duration `mapstructure:"-"`
	MaxOpen, MaxPerClient, MaxPerUser  int           `mapstructure:"-"`
}

// Tokens configures which JSON Web Tokens are accepted. With neither a secret nor a URL, none are.
type Tokens struct {
	Issuer      string        `mapstructure:"issuer"                validate:"required_with=HS256Secret JWKSURL,max=255"`
	Audience    string        `mapstructure:"audience"              validate:"required_with=HS256Secret JWKSURL,max=255"`
	HS256Secret string        `mapstructure:"hs256_secret"          validate:"omitempty,secret=32"`
	JWKSURL     string        `mapstructure:"jwks_url"              validate:"omitempty,excluded_with=HS256Secret,http_url"`
	Client      string        `mapstructure:"client"                validate:"omitempty,excluded_without_all=HS256Secret JWKSURL,client,ne=system,ne=oidc"`
	RoleClaim   string        `mapstructure:"role_claim"            validate:"required,max=255"`
	MaxLifetime time.Duration `mapstructure:"max_lifetime"          validate:"min=0,max=8760h"`

	Leeway, JWKSRefreshInterval, JWKSTimeout time.Duration `mapstructure:"-"`
}

// Console configures how operators sign in.
type Console struct {
	SignIn string `mapstructure:"sign_in" validate:"omitempty,oneof=oidc key both"` // empty: oidc with an issuer, key without
	OIDC   OIDC   `mapstructure:"oidc"`
}

// ByKey reports whether keys sign in to the console.
func (c Console) ByKey() bool {
	return c.SignIn == "key" || c.SignIn == "both" || c.SignIn == "" && c.OIDC.Issuer == ""
}

// ByAccount reports whether accounts sign in to the console.
func (c Console) ByAccount() bool { return c.OIDC.Issuer != "" && c.SignIn != "key" }

// Books are the books of accounting.
type Books struct {
	EarnedAt string `mapstructure:"earned_at" validate:"oneof=result sale_end"`
	Accounts string `mapstructure:"accounts"` // account=number, with commas
}

// Numbers returns the company's numbers, by account. ok is false for anything else.
func (b Books) Numbers() (numbers map[string]string, ok bool) {
	numbers = make(map[string]string)
	for _, one := range listOf(b.Accounts) {
		account, number, _ := strings.Cut(one, "=")
		if _, twice := numbers[account]; twice || !slices.Contains(Accounts, account) || number == "" || len(number) > 50 || strings.ContainsFunc(number, unicode.IsControl) {
			return nil, false
		}
		numbers[account] = number
	}
	return numbers, true
}

// Accounts are the accounts of the journal; package books explains them.
var Accounts = strings.Fields("receivable cash_outside wallet_liability unearned sales refunds_payable fees disputes bank exchange provider_adjustments")

// Approvals are the operations that need another person's approval when an operator asks for them.
type Approvals struct {
	Required []string `mapstructure:"required"` // of [Approvable]
	Above    string   `mapstructure:"above"`    // thresholds of wallets: JPY 100000, EUR 1000; see [Approvals.Thresholds]
	By       string   `mapstructure:"by"       validate:"oneof=all persons"`
}

// Approvable are the names of operations that may need an approval.
var Approvable = []string{"campaign.cancel", "draw.void", "payment.resolve", "refund.resolve", "refunds.resolve-campaign", "wallet.credit", "wallet.debit", "books.close"}

// Thresholds returns the amounts in minor units, by currency, up to which wallets need no approval.
func (a Approvals) Thresholds() (of map[string]int64, err error) {
	of = make(map[string]int64)
	for _, one := range listOf(a.Above) {
		currency, text, _ := strings.Cut(one, " ")
		amount, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		_, isTwice := of[currency]
		if !matches(`[A-Z]{3}`)(currency, "") || err != nil || amount < 1 || isTwice {
			return nil, fault("approvals.above", "must be currencies, each once with an amount in minor units, separated by commas, such as JPY 100000, EUR 1000; got %q", one)
		}
		of[currency] = amount
	}
	return of, nil
}

// OIDC is the OpenID provider of the company's accounts. Without an issuer there is none.
type OIDC struct {
	Issuer       string    `mapstructure:"issuer"        validate:"max=255"`
	ClientID     string    `mapstructure:"client_id"     validate:"required_with=Issuer,max=255"`
	ClientSecret string    `mapstructure:"client_secret" validate:"max=4096"`
	Scopes       string    `mapstructure:"scopes"        validate:"required,max=255"`
	RolesClaim   string    `mapstructure:"roles_claim"   validate:"required,max=255"`
	Roles        OIDCRoles `mapstructure:"roles"`
}

// OIDCRoles are the groups, values of the claim of roles, that give each role.
type OIDCRoles struct {
	Operator []string `mapstructure:"operator"`
	Approver []string `mapstructure:"approver"`
	Viewer   []string `mapstructure:"viewer"`
}

// Limits are the rate limits of users and clients. A rate of 0 is no limit.
type Limits struct {
	UserRate     int           `mapstructure:"user_rate"    validate:"min=0,max=100000"`
	UserBurst    int           `mapstructure:"user_burst"   validate:"min=1,max=100000"`
	ClientRate   int           `mapstructure:"client_rate"  validate:"min=0,max=1000000"`
	ClientBurst  int           `mapstructure:"client_burst" validate:"min=1,max=1000000"`
	AddressRate  int           `mapstructure:"address_rate"  validate:"min=0,max=1000000"`
	AddressBurst int           `mapstructure:"address_burst" validate:"min=1,max=1000000"`
	Budget       time.Duration `mapstructure:"-"`
}

// Accept has the batches that store requests as jobs.
type Accept struct {
	BatchLinger, Timeout, LongestWait time.Duration `mapstructure:"-"`
}

// Worker does jobs.
type Worker struct {
	Draws                                                         int           `mapstructure:"draws"              validate:"min=1,max=64"`
	Shards                                                        int           `mapstructure:"shards"             validate:"min=1,max=64"`
	Listen                                                        string        `mapstructure:"listen"             validate:"omitempty,listen"`
	Concurrency, MaxDeliveries                                    int           `mapstructure:"-"`
	BatchLinger, HeartbeatInterval, HeartbeatTTL, ShutdownTimeout time.Duration `mapstructure:"-"`
	OptionalTimeout                                               time.Duration `mapstructure:"-"` // of calls whose failure a sweep makes good
}

// Campaigns bounds campaigns and purchases.
type Campaigns struct {
	MaxPositions int `mapstructure:"max_positions" validate:"min=6,max=500500"` // of a campaign
	MaxQuantity  int `mapstructure:"max_quantity"  validate:"min=1,max=1000"`
}

// Holds bounds the positions and durations of holds.
type Holds struct {
	TTL                 time.Duration `mapstructure:"ttl"                    validate:"min=1s,ltefield=MaxTTL"`
	MaxTTL              time.Duration `mapstructure:"max_ttl"                validate:"min=1s,max=24h"`
	MaxPositions        int           `mapstructure:"max_positions"          validate:"min=1,max=1000"`
	MaxPerUser          int           `mapstructure:"max_per_user"           validate:"min=1,max=1000"`
	MaxPositionsPerUser int           `mapstructure:"max_positions_per_user" validate:"gtefield=MaxPositions,max=100000"`
	BatchSize           int           `mapstructure:"-"`
	Timeout             time.Duration `mapstructure:"-"`
}

// Wallets bounds authorizations, and the batches of wallet commands.
type Wallets struct {
	AuthorizationTTL time.Duration `mapstructure:"authorization_ttl" validate:"min=1s,max=720h"`
	Timeout          time.Duration `mapstructure:"-"`
}

// Payments has the reservations of card purchases and the payment provider.
type Payments struct {
	Reservation  time.Duration `mapstructure:"reservation"     validate:"min=1s,max=24h"`
	AfterSaleEnd time.Duration `mapstructure:"after_sale_end"  validate:"min=1s,max=24h"`

	MaxPositionsPerUser          int           `mapstructure:"max_positions_per_user" validate:"min=1,max=100000"`
	ReturnURL                    string        `mapstructure:"return_url"      validate:"omitempty,http_url,max=2048"`
	AllowTest                    bool          `mapstructure:"allow_test"`
	Stripe                       Stripe        `mapstructure:"stripe"`
	MaxExtension, Lease, Recheck time.Duration `mapstructure:"-"`
	Concurrency                  int           `mapstructure:"-"`
}

// Stripe is the payment provider. Rates are calls per second and process.
type Stripe struct {
	Key           string        `mapstructure:"key"               validate:"omitempty,stripe_key,max=255"`
	URL           string        `mapstructure:"url"               validate:"omitempty,server,max=2048"`
	WebhookSecret string        `mapstructure:"webhook_secret"    validate:"webhook_secrets,max=2048"`
	Account       string        `mapstructure:"account"           validate:"omitempty,startswith=acct_,max=255"`
	MethodTypes   string        `mapstructure:"payment_method_types" validate:"method_types,max=1024"` // separated by commas: see PaymentMethodTypes
	Rate          int           `mapstructure:"rate"              validate:"min=1,max=10000"`
	Timeout       time.Duration `mapstructure:"-"`
	EventTimeout  time.Duration `mapstructure:"-"` // of a long event to arrive
	EndpointRate  int           `mapstructure:"-"`
}

// Enabled reports whether cards are accepted.
func (s Stripe) Enabled() bool { return s.Key != "" }

// Live reports whether the key moves real money.
func (s Stripe) Live() bool {
	return strings.HasPrefix(s.Key, "sk_live_") || strings.HasPrefix(s.Key, "rk_live_")
}

// WebhookSecrets returns the secrets that webhooks may be signed with.
func (s Stripe) WebhookSecrets() []string { return listOf(s.WebhookSecret) }

// PaymentMethodTypes returns the types of payment methods that buyers may use, in Stripe's words.
func (s Stripe) PaymentMethodTypes() []string { return listOf(s.MethodTypes) }

// CheckWebhooks rejects a key without a webhook secret. Only the api calls it, because it receives webhooks.
func (s Stripe) CheckWebhooks() error {
	if s.Enabled() && s.WebhookSecret == "" {
		return fault("payments.stripe.webhook_secret", "is required by the api together with payments.stripe.key; Stripe shows it where the webhook is set up")
	}
	return nil
}

// Draw has the keys of draw secrets and the times of the execution lock. Secrets are encrypted with SecretKey;
// PreviousSecretKeys, separated by commas, decrypt older ones.
type Draw struct {
	SecretKey          string        `mapstructure:"secret_key"           validate:"omitempty,hexadecimal,len=64"`
	PreviousSecretKeys string        `mapstructure:"previous_secret_keys" validate:"draw_keys"`
	Lease, Timeout     time.Duration `mapstructure:"-"`
}

// Beacon is the chain of public randomness that campaigns may use, and the relays that serve its rounds.
type Beacon struct {
	Default   bool          `mapstructure:"default"`
	Relays    string        `mapstructure:"relays" validate:"relays,max=8192"`
	ChainInfo string        `mapstructure:"chain" validate:"max=4096"`
	Timeout   time.Duration `mapstructure:"-"`
}

// Enabled reports whether campaigns may use a beacon, because there are relays.
func (b Beacon) Enabled() bool { return strings.TrimSpace(b.Relays) != "" }

// URLs returns the base URLs of the relays, without a trailing slash.
func (b Beacon) URLs() []string {
	urls := listOf(b.Relays)
	for i := range urls {
		urls[i] = strings.TrimRight(urls[i], "/")
	}
	return urls
}

// Chain returns the chain of the settings: quicknet, or beacon.chain in the format of drand's relays. It returns an
// error if the chain is invalid or does not match its hash.
func (b Beacon) Chain() (c beacon.Chain, err error) {
	if strings.TrimSpace(b.ChainInfo) == "" {
		return beacon.Quicknet(), nil
	}
	var info struct {
		PublicKey   string `json:"public_key"` // these three in hex
		GroupHash   string `json:"groupHash"`
		Hash        string `json:"hash"`
		Period      int    `json:"period"`       // seconds
		GenesisTime int64  `json:"genesis_time"` // Unix seconds
		Metadata    struct {
			BeaconID string `json:"beaconID"`
		} `json:"metadata"`
	}
	bad := func(format string, args ...any) error { return fault("beacon.chain", format, args...) }
	if err := json.Unmarshal([]byte(b.ChainInfo), &info); err != nil {
		return c, bad("must be JSON, as a relay answers at /info: %v", err)
	}
	c = beacon.Chain{GenesisTime: info.GenesisTime, ID: info.Metadata.BeaconID, PeriodS: info.Period}
	if c.PublicKey, err = hex.DecodeString(info.PublicKey); err != nil {
		return c, bad("public_key must be hex digits")
	}
	if c.GenesisSeed, err = hex.DecodeString(info.GroupHash); err != nil {
		return c, bad("groupHash must be hex digits")
	}
	if err := c.Check(); err != nil {
		return c, bad("%v", err)
	}
	if hash := fmt.Sprintf("%x", c.Hash()); hash != info.Hash {
		return c, bad("hash is %q, but the other fields are those of the chain %s", info.Hash, hash)
	}
	return c, nil
}

// Webhooks notify apps of events. AllowNetworks are CIDRs, separated by commas: private networks that webhooks may
// reach, although apps choose the addresses.
type Webhooks struct {
	AllowNetworks          string        `mapstructure:"allow_networks"            validate:"networks"`
	Concurrency            int           `mapstructure:"concurrency"               validate:"min=1,max=1000"`
	ConcurrencyPerEndpoint int           `mapstructure:"-"`
	Timeout                time.Duration `mapstructure:"-"`
}

// Retention is how long final jobs are kept: Purchases is for purchases and cancellations, Refused for those of them
// that were refused, Jobs for all others. Webhooks is for events to apps, Books for the provider's balance. Personal is how long a
// user is stored after the newest purchase or movement of money; 0: until an erasure.
type Retention struct {
	Jobs      time.Duration `mapstructure:"jobs"      validate:"min=24h,max=8760h"`
	Purchases time.Duration `mapstructure:"purchases" validate:"min=24h,max=87600h"`
	Refused   time.Duration `mapstructure:"refused"   validate:"min=24h,ltefield=Purchases"`

	Webhooks time.Duration `mapstructure:"webhooks"       validate:"min=24h,max=8760h"`

	Books    time.Duration `mapstructure:"books"    validate:"min=2160h,max=175200h"`
	Personal time.Duration `mapstructure:"personal" validate:"omitempty,min=720h,max=175200h"`
}

// Scheduler runs the sweeps at their intervals.
type Scheduler struct {
	Listen string `mapstructure:"listen"           validate:"omitempty,listen"`

	SweepTimeout, ReportTimeout, ShutdownTimeout time.Duration `mapstructure:"-"`
	BatchSize, MaxBatches                        int           `mapstructure:"-"`
}

// Sweeps are times of sweeps that only tests set; Every is by name of the sweep.
type Sweeps struct {
	LostJobsBackoff, LostJobsMaxBackoff, StuckDrawsAfter time.Duration            `mapstructure:"-"`
	Every                                                map[string]time.Duration `mapstructure:"-"`
}
