package config

import (
	"time"
)

// Settings has every setting of every process; configs/triprize.yaml explains them.
type Settings struct {
	Log         Log         `mapstructure:"log"`
	Tracing     Tracing     `mapstructure:"tracing"`
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

// Tracing sends spans to a collector of OpenTelemetry.
type Tracing struct {
	OTLPURL     string  `mapstructure:"otlp_url"     validate:"omitempty,http_url"`
	SampleRatio float64 `mapstructure:"sample_ratio" validate:"min=0,max=1"`
}

// Postgres is the database, which alone decides.
type Postgres struct {
	URL                      string        `mapstructure:"url"                         validate:"required,url_of=postgres postgresql"`
	MaxConnections           int32         `mapstructure:"max_connections"             validate:"min=2,max=1000"`
	StartWait                time.Duration `mapstructure:"start_wait"                  validate:"min=0,max=1h"`
	ConnectTimeout           time.Duration `mapstructure:"connect_timeout" constant:"5s"` // one attempt to connect
	StatementTimeout         time.Duration `mapstructure:"statement_timeout"           validate:"min=10ms,max=10m"`
	LockTimeout              time.Duration `mapstructure:"lock_timeout" constant:"3s"`                // one wait for a lock, enforced by the server
	IdleInTransactionTimeout time.Duration `mapstructure:"idle_in_transaction_timeout" constant:"5s"` // a transaction in which nothing happens is aborted after this, and its locks are released
	IdleConnectionTimeout    time.Duration `mapstructure:"idle_connection_timeout" constant:"30s"`    // an unused connection is closed after this
	TCPUserTimeout           time.Duration `mapstructure:"tcp_user_timeout" constant:"10s"`           // a connection is closed when the other end has not acknowledged data for this long
}

// Redis carries tasks, caches, locks and rate limits.
type Redis struct {
	URL          string        `mapstructure:"url"           validate:"required,url_of=redis rediss unix"`
	Namespace    string        `mapstructure:"namespace"     validate:"required,max=64,printascii,excludesall={} "`
	DialTimeout  time.Duration `mapstructure:"dial_timeout" constant:"2s"`  // one attempt to connect
	ReadTimeout  time.Duration `mapstructure:"read_timeout" constant:"2s"`  // one answer
	WriteTimeout time.Duration `mapstructure:"write_timeout" constant:"2s"` // one command
	PoolSize     int           `mapstructure:"pool_size" constant:"32"`     // connections per process
}

// Locks are the locks in Redis that keep many waiting requests off Postgres.
type Locks struct {
	Enabled     bool          `mapstructure:"enabled"`
	RedisURLs   string        `mapstructure:"redis_urls"   validate:"omitempty,quorum_of=redis rediss unix"`
	TTL         time.Duration `mapstructure:"ttl" constant:"5s"`            // the lock of a dead holder is free after this; a living holder extends it
	DriftFactor float64       `mapstructure:"drift_factor" constant:"0.01"` // this part of ttl is not used, because clocks differ
	Tries       int           `mapstructure:"tries" constant:"3"`           // how often a taken lock is tried
	RetryDelay  time.Duration `mapstructure:"retry_delay" constant:"50ms"`  // mean pause between two tries; each is between half and one and a half of it
	Timeout     time.Duration `mapstructure:"timeout" constant:"1s"`        // longest time to take locks, all tries together; less than ttl. One server may take a quarter of it for an answer.
}

// URLs returns the servers of the quorum; nil: locks are kept on redis.url.
func (l Locks) URLs() []string { return listOf(l.RedisURLs) }

// API is the HTTP server.
type API struct {
	Listen                   string        `mapstructure:"listen"             validate:"required,hostname_port"`
	MetricsListen            string        `mapstructure:"metrics_listen" validate:"omitempty,hostname_port"`
	BodyLimitBytes           int           `mapstructure:"body_limit_bytes" constant:"1048576"` // a larger body gets 413; most operations allow much less (x-max-body-bytes in the contract)
	ReadTimeout              time.Duration `mapstructure:"read_timeout" constant:"10s"`         // for the head of a request; a body may come slower than 2 KiB/s for this long. Beyond it: 408
	WriteTimeout             time.Duration `mapstructure:"write_timeout" constant:"10s"`        // a client that reads its answer slower than 2 KiB/s for this long is cut off
	IdleTimeout              time.Duration `mapstructure:"idle_timeout"       validate:"min=1s,max=1h"`
	RequestTimeout           time.Duration `mapstructure:"request_timeout"    validate:"min=100ms,max=10m"`
	MaxConnections           int           `mapstructure:"max_connections"    validate:"min=1,max=1000000"`
	MaxConnectionsPerAddress int           `mapstructure:"max_connections_per_address" validate:"min=0,max=1000000"`
	MaxWait                  time.Duration `mapstructure:"max_wait"           validate:"min=1s,max=5m"`
	WaitsPerClient           int           `mapstructure:"waits_per_client"   validate:"min=1,max=1000000"`
	WaitsPerUser             int           `mapstructure:"waits_per_user"     validate:"min=1,max=1000000"`
	WaitPollInterval         time.Duration `mapstructure:"wait_poll_interval" constant:"250ms"` // how often jobs that clients wait for are read while Redis does not announce them
	ShutdownTimeout          time.Duration `mapstructure:"shutdown_timeout"   validate:"min=100ms,max=10m"`
	KeyCacheTTL              time.Duration `mapstructure:"key_cache_ttl" constant:"5s"` // a revoked API key stops working everywhere within this
	AsynqmonReadOnly         bool          `mapstructure:"asynqmon_read_only"`
	CORSOrigins              string        `mapstructure:"cors_origins"`
}

// Proofs are the proof documents that are sent.
type Proofs struct {
	MaxOpen       int           `mapstructure:"max_open" constant:"64"`       // sent at once, per process; beyond it 503 overloaded. Callers without a key have half of them
	MaxPerCaller  int           `mapstructure:"max_per_caller" constant:"2"`  // of these, to one client; beyond it 429 rate-limited
	MaxPerAddress int           `mapstructure:"max_per_address" constant:"1"` // the same for one address without a key, if addresses have a rate (behind a proxy it is everybody's)
	Timeout       time.Duration `mapstructure:"timeout" constant:"10m"`       // a proof that is not read completely within this is cut off
}

// Exports are the lists that are sent as CSV.
type Exports struct {
	MaxOpen      int           `mapstructure:"max_open"       validate:"min=1,max=10000"`
	MaxPerCaller int           `mapstructure:"max_per_caller" constant:"2"` // of these, to one client; beyond it 429 rate-limited
	Timeout      time.Duration `mapstructure:"timeout" constant:"10m"`      // a list that is not read completely within this is cut off
}

// Streams are the event streams of campaigns and jobs.
type Streams struct {
	Interval     time.Duration `mapstructure:"interval" constant:"500ms"` // how often campaigns with streams are read: one query per api process; none when there are no streams
	Heartbeat    time.Duration `mapstructure:"heartbeat"      validate:"min=100ms,max=5m"`
	MaxOpen      int           `mapstructure:"max_open"       validate:"min=1,max=1000000"`
	MaxPerClient int           `mapstructure:"max_per_client" validate:"min=1,max=1000000"`
	MaxPerUser   int           `mapstructure:"max_per_user"   validate:"min=1,max=1000000"`
	MaxAge       time.Duration `mapstructure:"max_age" constant:"10m"` // a stream ends after about this time. The client connects again, perhaps to another process, and its credential is checked again.
	Retry        time.Duration `mapstructure:"retry" constant:"2s"`    // clients wait this long before they connect again, or up to half as long again
}

// Tokens says which JSON Web Tokens are accepted. With neither a secret nor a URL,
// all are refused.
type Tokens struct {
	Issuer              string        `mapstructure:"issuer"                validate:"required_with=HS256Secret JWKSURL,max=255"`
	Audience            string        `mapstructure:"audience"              validate:"required_with=HS256Secret JWKSURL,max=255"`
	HS256Secret         string        `mapstructure:"hs256_secret"          validate:"omitempty,secret=32"`
	JWKSURL             string        `mapstructure:"jwks_url"              validate:"omitempty,excluded_with=HS256Secret,http_url"`
	Client              string        `mapstructure:"client"                validate:"omitempty,client"`
	RoleClaim           string        `mapstructure:"role_claim"            validate:"required,max=255"`
	Leeway              time.Duration `mapstructure:"leeway" constant:"30s"` // how much the issuer's clock may differ from ours
	MaxLifetime         time.Duration `mapstructure:"max_lifetime"          validate:"min=0,max=8760h"`
	JWKSRefreshInterval time.Duration `mapstructure:"jwks_refresh_interval" constant:"5m"` // a key that the issuer withdrew stops working within this, if the issuer's server answers
	JWKSTimeout         time.Duration `mapstructure:"jwks_timeout" constant:"2s"`          // one attempt to fetch the keys
}

// Limits bounds how often users and clients ask for changes. A rate of 0 is no limit.
type Limits struct {
	UserRate     int           `mapstructure:"user_rate"    validate:"min=0,max=100000"`
	UserBurst    int           `mapstructure:"user_burst"   validate:"min=1,max=100000"`
	ClientRate   int           `mapstructure:"client_rate"  validate:"min=0,max=1000000"`
	ClientBurst  int           `mapstructure:"client_burst" validate:"min=1,max=1000000"`
	AddressRate  int           `mapstructure:"address_rate"  validate:"min=0,max=1000000"`
	AddressBurst int           `mapstructure:"address_burst" validate:"min=1,max=1000000"`
	Budget       time.Duration `mapstructure:"budget" constant:"50ms"` // longest time a request waits for Redis before this process counts alone
}

// Accept is how requests are stored as jobs, in batches.
type Accept struct {
	BatchSize   int           `mapstructure:"batch_size" constant:"256"`   // most jobs in one transaction; a batch makes one task, so at most outbox.MaxJobs
	BatchLinger time.Duration `mapstructure:"batch_linger" constant:"1ms"` // under load, how long a batch waits for more requests
	MaxPending  int           `mapstructure:"max_pending" constant:"8192"` // requests waiting for a batch; beyond it the answer is 503 overloaded
	Timeout     time.Duration `mapstructure:"timeout" constant:"10s"`      // one batch, from first statement to commit
	LongestWait time.Duration `mapstructure:"longest_wait" validate:"min=1s,max=24h"`
}

// Worker finalizes jobs.
type Worker struct {
	Concurrency       int           `mapstructure:"concurrency"        validate:"min=1,max=10000"`
	Draws             int           `mapstructure:"draws"              validate:"min=1,max=64"`
	TaskTimeout       time.Duration `mapstructure:"task_timeout" constant:"5m"` // a task that takes longer, for example because Postgres is away, goes back to the queue
	Shards            int           `mapstructure:"shards"             validate:"min=1,max=64"`
	BatchSize         int           `mapstructure:"batch_size" constant:"256"`        // most jobs in one transaction
	BatchLinger       time.Duration `mapstructure:"batch_linger" constant:"1ms"`      // under load, how long a batch waits for more jobs
	MaxDeliveries     int           `mapstructure:"max_deliveries" constant:"5"`      // a job that killed its worker this often is finalized as failed
	HeartbeatInterval time.Duration `mapstructure:"heartbeat_interval" constant:"2s"` // how often a worker reports that it is alive
	HeartbeatTTL      time.Duration `mapstructure:"heartbeat_ttl" constant:"5s"`      // a worker that is silent for this long counts as dead, and its tasks are enqueued again
	Listen            string        `mapstructure:"listen"             validate:"omitempty,hostname_port"`
	ShutdownTimeout   time.Duration `mapstructure:"shutdown_timeout"   validate:"min=100ms,max=10m"`
}

// Idempotency is the Redis fast path in front of the jobs table.
type Idempotency struct {
	Budget     time.Duration `mapstructure:"budget" constant:"50ms"`    // of a look-up in Redis; a request waits for three at most, and then asks Postgres
	RequestTTL time.Duration `mapstructure:"request_ttl" constant:"5m"` // how long a key's answer is kept in Redis, 12h at most; Postgres keeps it for retention.*, which is longer; with jobRemembered in the api less than any retention
}

// Campaigns bounds what operators and buyers may ask for.
type Campaigns struct {
	MaxPositions int `mapstructure:"max_positions" validate:"min=6,max=500500"` // of a campaign
	MaxQuantity  int `mapstructure:"max_quantity"  validate:"min=1,max=1000"`
}

// Holds bounds what users may hold, and for how long.
type Holds struct {
	TTL                 time.Duration `mapstructure:"ttl"                    validate:"gtefield=MinTTL,ltefield=MaxTTL"`
	MinTTL              time.Duration `mapstructure:"min_ttl" constant:"1s"` // the shortest that a request may choose
	MaxTTL              time.Duration `mapstructure:"max_ttl"                validate:"gtefield=MinTTL,max=24h"`
	MaxExtensions       int           `mapstructure:"max_extensions"         validate:"min=0,max=100"`
	MaxPositions        int           `mapstructure:"max_positions"          validate:"min=1,max=1000"`
	MaxPerUser          int           `mapstructure:"max_per_user"           validate:"min=1,max=1000"`
	MaxPositionsPerUser int           `mapstructure:"max_positions_per_user" validate:"gtefield=MaxPositions,max=100000"`
	MaxSharePercent     int           `mapstructure:"max_share_percent"      validate:"min=1,max=100"`
	CoolDown            time.Duration `mapstructure:"cool_down"              validate:"min=0,max=1h"`
	BatchSize           int           `mapstructure:"batch_size" constant:"128"`   // most holds in one transaction
	BatchLinger         time.Duration `mapstructure:"batch_linger" constant:"1ms"` // under load, how long a batch waits for more requests
	MaxPending          int           `mapstructure:"max_pending" constant:"4096"` // requests waiting for a batch; beyond it the answer is 503 overloaded
	Timeout             time.Duration `mapstructure:"timeout" constant:"10s"`      // one batch, from first statement to commit; and how long a request waits for a campaign that is locked elsewhere
}

// Wallets bounds authorizations, and the batches of wallet commands.
type Wallets struct {
	AuthorizationTTL time.Duration `mapstructure:"authorization_ttl" validate:"min=1s,max=720h"`
	BatchSize        int           `mapstructure:"batch_size" constant:"256"`   // most commands in one transaction
	BatchLinger      time.Duration `mapstructure:"batch_linger" constant:"1ms"` // under load, how long a batch waits for more commands
	MaxPending       int           `mapstructure:"max_pending" constant:"8192"` // requests waiting for a batch; beyond it the answer is 503 overloaded
	Timeout          time.Duration `mapstructure:"timeout" constant:"10s"`      // one batch, from first statement to commit; and how long a command waits for a wallet that is locked elsewhere
}

// Draw has the keys of the draw secrets and the times of the execution lock. A secret is
// sealed with SecretKey; PreviousSecretKeys, separated by commas, open what it does not.
type Draw struct {
	SecretKey          string        `mapstructure:"secret_key"           validate:"omitempty,hexadecimal,len=64"`
	PreviousSecretKeys string        `mapstructure:"previous_secret_keys" validate:"draw_keys"`
	Lease              time.Duration `mapstructure:"lease" constant:"10s"`   // another worker may take over a draw whose worker is silent for this long
	Timeout            time.Duration `mapstructure:"timeout" constant:"60s"` // one attempt, from claim to result
}

// Webhooks tell apps what has happened. AllowNetworks are CIDRs, separated by commas: private
// networks that requests may go to, although apps choose the addresses.
type Webhooks struct {
	AllowNetworks          string        `mapstructure:"allow_networks"            validate:"networks"`
	MaxEndpoints           int           `mapstructure:"max_endpoints"             validate:"min=1,max=1000"`
	Concurrency            int           `mapstructure:"concurrency"               validate:"min=1,max=1000"`
	ConcurrencyPerEndpoint int           `mapstructure:"concurrency_per_endpoint"  validate:"min=1,max=100"`
	Timeout                time.Duration `mapstructure:"timeout" constant:"15s"` // one request
	GiveUpAfter            time.Duration `mapstructure:"give_up_after"             validate:"min=1h,max=720h"`
}

// Retention tells how long ended holds and final jobs are kept; Purchases is for
// the jobs of purchases and cancellations, Refused for those of them that were
// refused, Jobs for all others. PaymentEvents is for what the provider of payments has told,
// Webhooks for what apps are told, BalanceTransactions for the reconciliation with the provider.
type Retention struct {
	Jobs      time.Duration `mapstructure:"jobs"      validate:"min=24h,max=8760h"`
	Purchases time.Duration `mapstructure:"purchases" validate:"min=24h,max=87600h"`
	Refused   time.Duration `mapstructure:"refused"   validate:"min=24h,max=87600h"`
	Holds     time.Duration `mapstructure:"holds"     validate:"min=24h,max=8760h"`

	PaymentEvents time.Duration `mapstructure:"payment_events" validate:"min=24h,max=8760h"`
	Webhooks      time.Duration `mapstructure:"webhooks"       validate:"min=24h,max=8760h"`

	BalanceTransactions time.Duration `mapstructure:"balance_transactions" validate:"min=2160h,max=87600h"`
}

// Scheduler runs the sweeps at their intervals.
type Scheduler struct {
	LeaderTTL       time.Duration `mapstructure:"leader_ttl" constant:"10s"`    // the leader's lock; another scheduler takes over after this
	SweepTimeout    time.Duration `mapstructure:"sweep_timeout" constant:"30s"` // one run of one sweep
	BatchSize       int           `mapstructure:"batch_size" constant:"500"`    // most rows that one statement of a sweep changes
	MaxBatches      int           `mapstructure:"max_batches" constant:"40"`    // most statements of a kind in one run; the next run goes on. old-records goes on until it is done
	Listen          string        `mapstructure:"listen"           validate:"omitempty,hostname_port"`
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout" validate:"min=100ms,max=10m"`
}

// Sweeps tells how often each sweep runs, and what counts as lost or stuck.
type Sweeps struct {
	LostJobsInterval              time.Duration `mapstructure:"lost_jobs_interval" constant:"5s"`              // finds accepted jobs that are in no queue and with no worker
	LostJobsBackoff               time.Duration `mapstructure:"lost_jobs_backoff" constant:"5s"`               // a task that was not seen for this long is looked for; after more than worker.max_deliveries dead workers, the time doubles with each further one
	LostJobsMaxBackoff            time.Duration `mapstructure:"lost_jobs_max_backoff" constant:"5m"`           // the longest of these times
	ExpiredAuthorizationsInterval time.Duration `mapstructure:"expired_authorizations_interval" constant:"1m"` // releases what expired authorizations hold; a wallet that is short of money does not wait for the sweep
	ExpiredHoldsInterval          time.Duration `mapstructure:"expired_holds_interval" constant:"10s"`         // cleans up expired holds; their positions are free at once, before the sweep
	ExpiredReservationsInterval   time.Duration `mapstructure:"expired_reservations_interval" constant:"10s"`  // frees positions whose payment did not arrive in time
	StaleLocksInterval            time.Duration `mapstructure:"stale_locks_interval" constant:"5s"`            // releases the execution locks of dead workers
	StuckDrawsInterval            time.Duration `mapstructure:"stuck_draws_interval" constant:"1m"`            // finds sold-out campaigns whose draw no worker runs
	StuckDrawsAfter               time.Duration `mapstructure:"stuck_draws_after" constant:"30s"`              // a campaign that is drawing for this long without a lock gets a new draw job
	OldRecordsInterval            time.Duration `mapstructure:"old_records_interval" constant:"1m"`            // deletes records that are older than retention.*
	DueItemsInterval              time.Duration `mapstructure:"due_items_interval" constant:"1s"`              // goes on with payments, refunds and webhook endpoints that are due and that nobody works on
	MissedEventsInterval          time.Duration `mapstructure:"missed_events_interval" constant:"1m"`          // asks the provider for events whose webhook did not come
	MissingPermissionsInterval    time.Duration `mapstructure:"missing_permissions_interval" constant:"1h"`    // asks what the key of the provider may do
	ReconciliationInterval        time.Duration `mapstructure:"reconciliation_interval" constant:"10m"`        // compares the provider's balance of a closed day with our books, once a day
	AuditInterval                 time.Duration `mapstructure:"audit_interval" constant:"10s"`                 // checks the invariants on a part of the rows, where its pauses are over
	EndedSalesInterval            time.Duration `mapstructure:"ended_sales_interval" constant:"10s"`           // finds campaigns whose sale has ended, and does what policies.unsold says
}
