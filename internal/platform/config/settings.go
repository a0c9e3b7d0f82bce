package config

import (
	"strings"
	"time"
)

// Settings has every setting of every process; configs/triprize.yaml explains them.
type Settings struct {
	Log         Log         `mapstructure:"log"`
	Postgres    Postgres    `mapstructure:"postgres"`
	Redis       Redis       `mapstructure:"redis"`
	Locks       Locks       `mapstructure:"locks"`
	API         API         `mapstructure:"api"`
	Streams     Streams     `mapstructure:"streams"`
	Proofs      Proofs      `mapstructure:"proofs"`
	Exports     Exports     `mapstructure:"exports"`
	Tokens      Tokens      `mapstructure:"tokens"`
	Limits      Limits      `mapstructure:"limits"`
	Accept      Accept      `mapstructure:"accept"`
	Worker      Worker      `mapstructure:"worker"`
	Idempotency Idempotency `mapstructure:"idempotency"`
	Campaigns   Campaigns   `mapstructure:"campaigns"`
	Holds       Holds       `mapstructure:"holds"`
	Wallets     Wallets     `mapstructure:"wallets"`
	Payments    Payments    `mapstructure:"payments"`
	Draw        Draw        `mapstructure:"draw"`
	Beacon      Beacon      `mapstructure:"beacon"`
	Timestamps  Timestamps  `mapstructure:"timestamps"`
	Webhooks    Webhooks    `mapstructure:"webhooks"`
	Retention   Retention   `mapstructure:"retention"`
	Scheduler   Scheduler   `mapstructure:"scheduler"`
	Sweeps      Sweeps      `mapstructure:"sweeps"`
}

// Log chooses what is logged, and how.
type Log struct {
	Level  string `mapstructure:"level"  validate:"oneof=debug info warn error"`
	Format string `mapstructure:"format" validate:"oneof=json text"`
}

// Postgres is the database, which alone decides.
type Postgres struct {
	URL                      string        `mapstructure:"url"                         validate:"required,url_of=postgres postgresql"`
	MaxConnections           int32         `mapstructure:"max_connections"             validate:"min=2,max=1000"`
	StartWait                time.Duration `mapstructure:"start_wait"                  validate:"min=0,max=1h"`
	ConnectTimeout           time.Duration `mapstructure:"connect_timeout"             validate:"min=10ms,max=1m"`
	StatementTimeout         time.Duration `mapstructure:"statement_timeout"           validate:"min=10ms,max=10m"`
	LockTimeout              time.Duration `mapstructure:"lock_timeout"                validate:"min=10ms,max=10m"`
	IdleInTransactionTimeout time.Duration `mapstructure:"idle_in_transaction_timeout" validate:"min=10ms,max=10m"`
	IdleConnectionTimeout    time.Duration `mapstructure:"idle_connection_timeout"     validate:"min=1s,max=1h"`
	TCPUserTimeout           time.Duration `mapstructure:"tcp_user_timeout"            validate:"min=1s,max=10m"`
}

// Redis carries tasks, caches, locks and rate limits.
type Redis struct {
	URL          string        `mapstructure:"url"           validate:"required,url_of=redis rediss unix"`
	Namespace    string        `mapstructure:"namespace"     validate:"required,max=64,printascii,excludesall={} "`
	DialTimeout  time.Duration `mapstructure:"dial_timeout"  validate:"min=10ms,max=1m"`
	ReadTimeout  time.Duration `mapstructure:"read_timeout"  validate:"min=10ms,max=1m"`
	WriteTimeout time.Duration `mapstructure:"write_timeout" validate:"min=10ms,max=1m"`
	PoolSize     int           `mapstructure:"pool_size"     validate:"min=2,max=10000"`
}

// Locks are the locks in Redis that keep many waiting requests off Postgres.
type Locks struct {
	Enabled     bool          `mapstructure:"enabled"`
	RedisURLs   string        `mapstructure:"redis_urls"   validate:"omitempty,quorum_of=redis rediss unix"`
	Wallets     bool          `mapstructure:"wallets"`
	TTL         time.Duration `mapstructure:"ttl"          validate:"min=100ms,max=10m"`
	DriftFactor float64       `mapstructure:"drift_factor" validate:"min=0,max=0.5"`
	Tries       int           `mapstructure:"tries"        validate:"min=1,max=100"`
	RetryDelay  time.Duration `mapstructure:"retry_delay"  validate:"min=1ms,max=10s"`
	Timeout     time.Duration `mapstructure:"timeout"      validate:"min=20ms,ltfield=TTL"`
}

// URLs returns the servers of the quorum; nil: locks are kept on redis.url.
func (l Locks) URLs() []string {
	if l.RedisURLs == "" {
		return nil
	}
	urls := strings.Split(l.RedisURLs, ",")
	for i := range urls {
		urls[i] = strings.TrimSpace(urls[i])
	}
	return urls
}

// API is the HTTP server.
type API struct {
	Listen                   string        `mapstructure:"listen"             validate:"required,hostname_port"`
	MetricsListen            string        `mapstructure:"metrics_listen" validate:"omitempty,hostname_port"`
	BodyLimitBytes           int           `mapstructure:"body_limit_bytes"   validate:"min=1024,max=67108864"`
	ReadTimeout              time.Duration `mapstructure:"read_timeout"       validate:"min=100ms,max=10m"`
	WriteTimeout             time.Duration `mapstructure:"write_timeout" validate:"min=100ms,max=10m"`
	IdleTimeout              time.Duration `mapstructure:"idle_timeout"       validate:"min=1s,max=1h"`
	RequestTimeout           time.Duration `mapstructure:"request_timeout"    validate:"min=100ms,max=10m"`
	MaxConnections           int           `mapstructure:"max_connections"    validate:"min=1,max=1000000"`
	MaxConnectionsPerAddress int           `mapstructure:"max_connections_per_address" validate:"min=0,max=1000000"`
	MaxWait                  time.Duration `mapstructure:"max_wait"           validate:"min=1s,max=5m"`
	WaitsPerClient           int           `mapstructure:"waits_per_client"   validate:"min=1,max=1000000"`
	WaitsPerUser             int           `mapstructure:"waits_per_user"     validate:"min=1,max=1000000"`
	WaitPollInterval         time.Duration `mapstructure:"wait_poll_interval" validate:"min=10ms,max=1m"`
	ShutdownTimeout          time.Duration `mapstructure:"shutdown_timeout"   validate:"min=100ms,max=10m"`
	KeyCacheTTL              time.Duration `mapstructure:"key_cache_ttl"      validate:"min=0,max=5s"`
	AsynqmonReadOnly         bool          `mapstructure:"asynqmon_read_only"`
	CORSOrigins              string        `mapstructure:"cors_origins"`
}

// Proofs are the proof documents that are sent.
type Proofs struct {
	MaxOpen      int           `mapstructure:"max_open"       validate:"min=1,max=10000"`
	MaxPerCaller int           `mapstructure:"max_per_caller" validate:"min=1,max=10000"`
	Timeout      time.Duration `mapstructure:"timeout"        validate:"min=1s,max=1h"`
}

// Exports are the lists that are sent as CSV.
type Exports struct {
	MaxOpen      int           `mapstructure:"max_open"       validate:"min=1,max=10000"`
	MaxPerCaller int           `mapstructure:"max_per_caller" validate:"min=1,max=10000"`
	Timeout      time.Duration `mapstructure:"timeout"        validate:"min=1s,max=1h"`
}

// Streams are the event streams of campaigns and jobs.
type Streams struct {
	Interval     time.Duration `mapstructure:"interval"       validate:"min=10ms,max=1m"`
	Heartbeat    time.Duration `mapstructure:"heartbeat"      validate:"min=100ms,max=5m"`
	MaxOpen      int           `mapstructure:"max_open"       validate:"min=1,max=1000000"`
	MaxPerClient int           `mapstructure:"max_per_client" validate:"min=1,max=1000000"`
	MaxPerUser   int           `mapstructure:"max_per_user"   validate:"min=1,max=1000000"`
	MaxAge       time.Duration `mapstructure:"max_age"        validate:"gtfield=Heartbeat,max=24h"`
	Retry        time.Duration `mapstructure:"retry"          validate:"min=100ms,max=5m"`
}

// Tokens says which JSON Web Tokens are accepted. With neither a secret nor a URL,
// all are refused.
type Tokens struct {
	Issuer              string        `mapstructure:"issuer"                validate:"required_with=HS256Secret JWKSURL,max=255"`
	Audience            string        `mapstructure:"audience"              validate:"required_with=HS256Secret JWKSURL,max=255"`
	HS256Secret         string        `mapstructure:"hs256_secret"          validate:"omitempty,secret=32"`
	JWKSURL             string        `mapstructure:"jwks_url"              validate:"omitempty,excluded_with=HS256Secret,http_url"`
	RoleClaim           string        `mapstructure:"role_claim"            validate:"required,max=255"`
	Leeway              time.Duration `mapstructure:"leeway"                validate:"min=0,max=5m"`
	MaxLifetime         time.Duration `mapstructure:"max_lifetime"          validate:"min=0,max=8760h"`
	JWKSRefreshInterval time.Duration `mapstructure:"jwks_refresh_interval" validate:"min=10s,max=24h"`
	JWKSTimeout         time.Duration `mapstructure:"jwks_timeout"          validate:"min=10ms,max=30s"`
}

// Limits bounds how often users and clients ask for changes. A rate of 0 is no limit.
type Limits struct {
	UserRate     int           `mapstructure:"user_rate"    validate:"min=0,max=100000"`
	UserBurst    int           `mapstructure:"user_burst"   validate:"min=1,max=100000"`
	ClientRate   int           `mapstructure:"client_rate"  validate:"min=0,max=1000000"`
	ClientBurst  int           `mapstructure:"client_burst" validate:"min=1,max=1000000"`
	AddressRate  int           `mapstructure:"address_rate"  validate:"min=0,max=1000000"`
	AddressBurst int           `mapstructure:"address_burst" validate:"min=1,max=1000000"`
	Budget       time.Duration `mapstructure:"budget"       validate:"min=1ms,max=10s"`
}

// Accept is how requests are stored as jobs, in batches.
type Accept struct {
	BatchSize   int           `mapstructure:"batch_size"   validate:"min=1,max=256"` // outbox.MaxJobs: a batch makes one task
	BatchLinger time.Duration `mapstructure:"batch_linger" validate:"min=0,max=1s"`
	InFlight    int           `mapstructure:"in_flight"    validate:"min=1,max=64"`
	MaxPending  int           `mapstructure:"max_pending"  validate:"min=1,max=1000000"`
	Timeout     time.Duration `mapstructure:"timeout"      validate:"min=10ms,max=1m"`
	LongestWait time.Duration `mapstructure:"longest_wait" validate:"min=1s,max=24h"`
}

// Worker finalizes jobs.
type Worker struct {
	Concurrency       int           `mapstructure:"concurrency"        validate:"min=1,max=10000"`
	Draws             int           `mapstructure:"draws"              validate:"min=1,max=64"`
	PollInterval      time.Duration `mapstructure:"poll_interval"      validate:"min=1ms,max=10s"`
	TaskTimeout       time.Duration `mapstructure:"task_timeout"       validate:"min=1s,max=1h"`
	Lanes             int           `mapstructure:"lanes"              validate:"min=1,max=64"`
	BatchSize         int           `mapstructure:"batch_size"         validate:"min=1,max=1000"`
	BatchLinger       time.Duration `mapstructure:"batch_linger"       validate:"min=0,max=1s"`
	MaxDeliveries     int           `mapstructure:"max_deliveries"     validate:"min=2,max=100"`
	HeartbeatInterval time.Duration `mapstructure:"heartbeat_interval" validate:"min=10ms,max=1m"`
	HeartbeatTTL      time.Duration `mapstructure:"heartbeat_ttl"      validate:"gtfield=HeartbeatInterval,max=10m"`
	Listen            string        `mapstructure:"listen"             validate:"omitempty,hostname_port"`
	ShutdownTimeout   time.Duration `mapstructure:"shutdown_timeout"   validate:"min=100ms,max=10m"`
}

// Idempotency is the Redis fast path in front of the jobs table.
type Idempotency struct {
	Budget     time.Duration `mapstructure:"budget"      validate:"min=1ms,max=10s"`
	RequestTTL time.Duration `mapstructure:"request_ttl" validate:"min=1s,max=12h"` // with jobRemembered in the api less than any retention
	ClaimTTL   time.Duration `mapstructure:"claim_ttl"   validate:"min=100ms,max=10m"`
	FinalTTL   time.Duration `mapstructure:"final_ttl" validate:"min=1s,max=24h"`
}

// Campaigns bounds what operators and buyers may ask for.
type Campaigns struct {
	MaxPositions int   `mapstructure:"max_positions" validate:"min=6,max=500500"` // of a campaign
	MinPrice     int64 `mapstructure:"min_price"     validate:"min=1"`
	MaxQuantity  int   `mapstructure:"max_quantity"  validate:"min=1,max=1000"`
}

// Holds bounds what users may hold, and for how long.
type Holds struct {
	TTL                 time.Duration `mapstructure:"ttl"                    validate:"gtefield=MinTTL,ltefield=MaxTTL"`
	MinTTL              time.Duration `mapstructure:"min_ttl"                validate:"min=1s,max=24h"`
	MaxTTL              time.Duration `mapstructure:"max_ttl"                validate:"gtefield=MinTTL,max=24h"`
	MaxExtensions       int           `mapstructure:"max_extensions"         validate:"min=0,max=100"`
	MaxPositions        int           `mapstructure:"max_positions"          validate:"min=1,max=1000"`
	MaxPerUser          int           `mapstructure:"max_per_user"           validate:"min=1,max=1000"`
	MaxPositionsPerUser int           `mapstructure:"max_positions_per_user" validate:"gtefield=MaxPositions,max=100000"`
	MaxSharePercent     int           `mapstructure:"max_share_percent"      validate:"min=1,max=100"`
	CoolDown            time.Duration `mapstructure:"cool_down"              validate:"min=0,max=1h"`
	BatchSize           int           `mapstructure:"batch_size"             validate:"min=1,max=256"`
	BatchLinger         time.Duration `mapstructure:"batch_linger"           validate:"min=0,max=1s"`
	MaxPending          int           `mapstructure:"max_pending"            validate:"min=1,max=1000000"`
	Timeout             time.Duration `mapstructure:"timeout"                validate:"min=10ms,max=1m"`
}

// Wallets bounds authorizations, and the batches of wallet commands.
type Wallets struct {
	AuthorizationTTL time.Duration `mapstructure:"authorization_ttl" validate:"min=1s,max=720h"`
	BatchSize        int           `mapstructure:"batch_size"        validate:"min=1,max=256"`
	BatchLinger      time.Duration `mapstructure:"batch_linger"      validate:"min=0,max=1s"`
	MaxPending       int           `mapstructure:"max_pending"       validate:"min=1,max=1000000"`
	Timeout          time.Duration `mapstructure:"timeout"           validate:"min=10ms,max=1m"`
}

// Draw has the keys of the draw secrets and the times of the execution lock. A secret is
// sealed with SecretKey; PreviousSecretKeys, separated by commas, open what it does not.
type Draw struct {
	SecretKey          string        `mapstructure:"secret_key"           validate:"omitempty,hexadecimal,len=64"`
	PreviousSecretKeys string        `mapstructure:"previous_secret_keys" validate:"draw_keys"`
	Lease              time.Duration `mapstructure:"lease"                validate:"min=100ms,max=1h"`
	Timeout            time.Duration `mapstructure:"timeout"              validate:"min=100ms,max=1h"`
}

// Webhooks tell apps what has happened. AllowNetworks are CIDRs, separated by commas: private
// networks that requests may go to, although strangers name the addresses.
type Webhooks struct {
	AllowNetworks          string        `mapstructure:"allow_networks"            validate:"networks"`
	MaxEndpoints           int           `mapstructure:"max_endpoints"             validate:"min=1,max=1000"`
	Concurrency            int           `mapstructure:"concurrency"               validate:"min=1,max=1000"`
	ConcurrencyPerEndpoint int           `mapstructure:"concurrency_per_endpoint"  validate:"min=1,max=100"`
	Timeout                time.Duration `mapstructure:"timeout"                   validate:"min=100ms,max=1m"`
	GiveUpAfter            time.Duration `mapstructure:"give_up_after"             validate:"min=1h,max=720h"`
}

// Retention tells how long ended holds and final jobs are kept; Purchases is for
// the jobs of purchases and cancellations, Refused for those of them that were
// refused, Jobs for all others. PaymentEvents is for what the provider of payments has told,
// Webhooks for what apps are told.
type Retention struct {
	Jobs      time.Duration `mapstructure:"jobs"      validate:"min=24h,max=8760h"`
	Purchases time.Duration `mapstructure:"purchases" validate:"min=24h,max=87600h"`
	Refused   time.Duration `mapstructure:"refused"   validate:"min=24h,max=87600h"`
	Holds     time.Duration `mapstructure:"holds"     validate:"min=24h,max=8760h"`

	PaymentEvents time.Duration `mapstructure:"payment_events" validate:"min=24h,max=8760h"`
	Webhooks      time.Duration `mapstructure:"webhooks"       validate:"min=24h,max=8760h"`
}

// Scheduler runs the sweeps at their intervals.
type Scheduler struct {
	LeaderTTL       time.Duration `mapstructure:"leader_ttl"       validate:"min=300ms,max=10m"`
	SweepTimeout    time.Duration `mapstructure:"sweep_timeout"    validate:"min=100ms,max=1h"`
	BatchSize       int           `mapstructure:"batch_size"       validate:"min=1,max=10000"`
	MaxBatches      int           `mapstructure:"max_batches"      validate:"min=1,max=10000"`
	Listen          string        `mapstructure:"listen"           validate:"omitempty,hostname_port"`
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout" validate:"min=100ms,max=10m"`
}

// Sweeps tells how often each sweep runs, and what counts as lost or stuck.
type Sweeps struct {
	LostJobsInterval              time.Duration `mapstructure:"lost_jobs_interval"            validate:"min=10ms,max=24h"`
	LostJobsBackoff               time.Duration `mapstructure:"lost_jobs_backoff"             validate:"min=10ms,max=1h"`
	LostJobsMaxBackoff            time.Duration `mapstructure:"lost_jobs_max_backoff"         validate:"gtefield=LostJobsBackoff,max=24h"`
	ExpiredAuthorizationsInterval time.Duration `mapstructure:"expired_authorizations_interval" validate:"min=10ms,max=24h"`
	ExpiredHoldsInterval          time.Duration `mapstructure:"expired_holds_interval"        validate:"min=10ms,max=24h"`
	ExpiredReservationsInterval   time.Duration `mapstructure:"expired_reservations_interval" validate:"min=10ms,max=24h"`
	StaleLocksInterval            time.Duration `mapstructure:"stale_locks_interval"          validate:"min=10ms,max=24h"`
	StuckDrawsInterval            time.Duration `mapstructure:"stuck_draws_interval"          validate:"min=10ms,max=24h"`
	StuckDrawsAfter               time.Duration `mapstructure:"stuck_draws_after"             validate:"min=10ms,max=24h"`
	OldRecordsInterval            time.Duration `mapstructure:"old_records_interval"          validate:"min=10ms,max=24h"`
	UnsettledPaymentsInterval     time.Duration `mapstructure:"unsettled_payments_interval"   validate:"min=10ms,max=24h"`
	MissedEventsInterval          time.Duration `mapstructure:"missed_events_interval"        validate:"min=10ms,max=24h"`
	DueWebhooksInterval           time.Duration `mapstructure:"due_webhooks_interval"         validate:"min=10ms,max=24h"`
	EndedSalesInterval            time.Duration `mapstructure:"ended_sales_interval"          validate:"min=10ms,max=24h"`
}
