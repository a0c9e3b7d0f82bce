package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize.example/draw/beacon"

	"triprize/configs"
	"triprize/internal/platform/failpoint"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "triprize.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// required gives the settings that have no default, unless the test has them already.
func required(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"TRIPRIZE_POSTGRES_URL": "postgres://localhost/triprize", "TRIPRIZE_REDIS_URL": "redis://localhost:6379/0"} {
		if _, isSet := os.LookupEnv(name); !isSet {
			t.Setenv(name, value)
		}
	}
}

// loads loads settings from the text of a file. With reasons it wants them refused, and all of the reasons
// in the error. No error repeats what a test keeps secret, which is hunter2.
func loads(t *testing.T, text string, reasons ...string) Settings {
	t.Helper()
	required(t)
	s, err := Load(write(t, text))
	if (err == nil) != (reasons == nil) {
		t.Fatalf("got %v, want %q", err, reasons)
	}
	for _, reason := range reasons {
		if !strings.Contains(err.Error(), reason) {
			t.Errorf("%q does not say %q", err, reason)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%q repeats a secret", err)
	}
	return s
}

// row is the text of a section, and what the reason has for which it is refused; nil: it is accepted.
type row struct {
	file string
	want []string
}

func section(t *testing.T, name string, rows map[string]row) {
	t.Helper()
	for what, c := range rows {
		t.Run(what, func(t *testing.T) { loads(t, name+":\n  "+c.file+"\n", c.want...) })
	}
}

func TestTheDefaultsAreThoseOfTheDocuments(t *testing.T) {
	s := loads(t, "")
	if l := s.Limits; l.UserRate != 10 || l.UserBurst != 20 || l.ClientRate != 20_000 || l.ClientBurst != 20_000 {
		t.Errorf("got %+v", l)
	}
	if p := s.Payments; p.Reservation != 15*time.Minute || p.ReturnURL != "" || p.AllowTest ||
		p.Stripe != (Stripe{MethodTypes: "card", Rate: 80}) || p.Stripe.Enabled() || p.Stripe.Live() {
		t.Errorf("got %+v", p)
	}
	if s.Holds.TTL != 2*time.Minute {
		t.Errorf("got %+v", s.Holds)
	}
	chain, err := s.Beacon.Chain()
	if err != nil || chain.Hash() != beacon.Quicknet().Hash() || !s.Beacon.Default || !s.Beacon.Enabled() || len(s.Beacon.URLs()) != 4 {
		t.Errorf("got %+v, the chain is %+v, %v", s.Beacon, chain, err)
	}
}

func TestEnvironmentWinsOverFileWinsOverDefault(t *testing.T) {
	required(t)
	file := write(t, "worker:\n  shards: 7\n  draws: 9\n")
	t.Setenv("TRIPRIZE_WORKER_SHARDS", "8")
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Worker.Shards != 8 || s.Worker.Draws != 9 {
		t.Errorf("got %+v", s.Worker)
	}
	t.Setenv(FileVariable, file)
	if s, err = Load(""); err != nil || s.Worker.Draws != 9 {
		t.Errorf("the file named by %s was not read: %v, %+v", FileVariable, err, s.Worker)
	}
}

func TestBadSettingsAreRefusedWithNameAndReason(t *testing.T) {
	for name, c := range map[string]struct {
		env  [2]string
		file string
		want []string
	}{
		"unknown in file":    {file: "worker:\n  lames: 7\n", want: []string{"worker.lames", "unknown"}},
		"unknown section":    {file: "wroker:\n  shards: 7\n", want: []string{"wroker.shards", "unknown"}},
		"a list of sections": {file: "worker: [shards]\n", want: []string{"unknown setting worker"}},
		"unknown variable":   {env: [2]string{"TRIPRIZE_WORKER_LAMES", "7"}, want: []string{"TRIPRIZE_WORKER_LAMES", "unknown"}},
		"out of bounds":      {env: [2]string{"TRIPRIZE_WORKER_SHARDS", "0"}, want: []string{"worker.shards", "TRIPRIZE_WORKER_SHARDS", "at least 1"}},
		"not a number":       {env: [2]string{"TRIPRIZE_WORKER_SHARDS", "many"}, want: []string{"worker.shards (TRIPRIZE_WORKER_SHARDS)", `"many" is not a whole number`}},
		"a fraction":         {file: "worker:\n  shards: 3.7\n", want: []string{"worker.shards (settings file ", "3.7 is not a whole number"}},
		"too large for its type": {file: "postgres:\n  max_connections: 4294967298\n",
			want: []string{"postgres.max_connections", "4294967298 is not a whole number in the range"}},
		"a truth for a number":   {file: "worker:\n  shards: true\n", want: []string{"worker.shards", "not a whole number"}},
		"nothing for a number":   {env: [2]string{"TRIPRIZE_WORKER_SHARDS", ""}, want: []string{"worker.shards (TRIPRIZE_WORKER_SHARDS)", `"" is not a whole number`}},
		"nothing for a truth":    {env: [2]string{"TRIPRIZE_API_ASYNQMON_READ_ONLY", ""}, want: []string{"api.asynqmon_read_only (TRIPRIZE_API_ASYNQMON_READ_ONLY)", `"" is neither true nor false`}},
		"nothing for an address": {env: [2]string{"TRIPRIZE_API_LISTEN", ""}, want: []string{"api.listen (TRIPRIZE_API_LISTEN)", "required"}},
		"nothing in the file":    {file: "worker:\n  shards:\n", want: []string{"worker.shards", "no value"}},
		"a number for a truth":   {file: "api:\n  asynqmon_read_only: 2\n", want: []string{"api.asynqmon_read_only", "neither true nor false"}},
		"a number for a text":    {file: "redis:\n  namespace: 7\n", want: []string{"redis.namespace", "in quotes"}},
		"not a duration":         {file: "holds:\n  ttl: soon\n", want: []string{"holds.ttl (settings file ", `"soon" is not a duration`}},
		"no unit":                {file: "holds:\n  ttl: 5\n", want: []string{"holds.ttl", "5 is not a duration with its unit"}},
		"no unit in a variable":  {env: [2]string{"TRIPRIZE_HOLDS_TTL", "5"}, want: []string{"holds.ttl (TRIPRIZE_HOLDS_TTL)", `"5" is not a duration with its unit`}},
		"not a choice":           {env: [2]string{"TRIPRIZE_LOG_FORMAT", "xml"}, want: []string{"log.format", "json text"}},
		"missing":                {env: [2]string{"TRIPRIZE_POSTGRES_URL", ""}, want: []string{"postgres.url", "required"}},
		"not a URL":              {env: [2]string{"TRIPRIZE_REDIS_URL", "redisfoo"}, want: []string{"redis.url (TRIPRIZE_REDIS_URL)", "redis://"}},
		"half a URL":             {env: [2]string{"TRIPRIZE_REDIS_URL", "redis:localhost"}, want: []string{"redis.url", "redis://"}},
		"another scheme":         {env: [2]string{"TRIPRIZE_POSTGRES_URL", "postgresfoo://localhost/db"}, want: []string{"postgres.url", "postgres://"}},
		"not an address":         {env: [2]string{"TRIPRIZE_API_LISTEN", "8080"}, want: []string{"api.listen", "host:port"}},
		"two replicas":           {env: [2]string{"TRIPRIZE_POSTGRES_READ_URL", "postgres://u:hunter2@a:5432,b:5432/db"}, want: []string{"postgres.read_url (TRIPRIZE_POSTGRES_READ_URL)", "one server"}},
		"two in its query":       {env: [2]string{"TRIPRIZE_POSTGRES_READ_URL", "postgres://u@/db?host=a,b"}, want: []string{"postgres.read_url", "one server"}},
		"a short secret":         {env: [2]string{"TRIPRIZE_DRAW_SECRET_KEY", "abcd"}, want: []string{"draw.secret_key", "64 hex digits"}},
		"not YAML":               {file: "worker: [", want: []string{"settings file"}},
		"a scalar for a map":     {file: "worker: 7\n", want: []string{"worker", "unknown"}},
		"an origin for all":      {env: [2]string{"TRIPRIZE_API_CORS_ORIGINS", "*"}, want: []string{"api.cors_origins (TRIPRIZE_API_CORS_ORIGINS)", "no *"}},
		"a collector with a key": {env: [2]string{"TRIPRIZE_TRACING_OTLP_URL", "http://me:hunter2@collector:4318"}, want: []string{"tracing.otlp_url", "OTEL_EXPORTER_OTLP_HEADERS"}},
		"refused for longer":     {file: "retention:\n  refused: 721h\n", want: []string{"retention.refused", "at most purchases"}},
		"a proxy by name":        {env: [2]string{"TRIPRIZE_API_TRUSTED_PROXIES", "haproxy"}, want: []string{"api.trusted_proxies (TRIPRIZE_API_TRUSTED_PROXIES)", "networks like 10.0.0.0/8"}},
		"a long drain":           {env: [2]string{"TRIPRIZE_API_DRAIN_DELAY", "1h"}, want: []string{"api.drain_delay (TRIPRIZE_API_DRAIN_DELAY)", "at most 5m"}},
		"a network with a host":  {file: "webhooks:\n  allow_networks: 10.0.0.0/8,10.0.0.1/8\n", want: []string{"webhooks.allow_networks", "networks like 10.0.0.0/8"}},
		"nine previous keys":     {file: "draw:\n  previous_secret_keys: " + strings.Repeat(strings.Repeat("5a", 32)+",", 8) + strings.Repeat("5a", 32) + "\n", want: []string{"draw.previous_secret_keys", "at most 8"}},
		"no burst":               {env: [2]string{"TRIPRIZE_LIMITS_USER_BURST", "0"}, want: []string{"limits.user_burst", "at least 1"}},
		"a negative rate":        {env: [2]string{"TRIPRIZE_LIMITS_CLIENT_RATE", "-1"}, want: []string{"limits.client_rate", "at least 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			required(t)
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			loads(t, c.file, c.want...)
		})
	}
}

func TestASecretIsNotRepeatedInTheReason(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", "hunter2")
	if _, err := Load(""); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", strings.Repeat("5a", 32))
	const raw = ":47%shunter2@db:1/0" // 47 would be a port
	for _, c := range []string{":a@", ":a@b,", "/", "?", "?a@", "#", "[", " ", "%", "\\"} {
		for variable, scheme := range map[string]string{"TRIPRIZE_POSTGRES_URL": "postgres", "TRIPRIZE_REDIS_URL": "redis", "TRIPRIZE_LOCKS_REDIS_URLS": "redis"} {
			text := scheme + "://u" + strings.Replace(raw, "%s", c, 1)
			if _, err := LoadFrom("", []string{"TRIPRIZE_POSTGRES_URL=postgres://localhost/triprize", variable + "=" + text}); err == nil || strings.Contains(err.Error(), "hunter2") ||
				!strings.Contains(err.Error(), "percent-encode") {
				t.Errorf("%s: got %v", text, err)
			}
		}
	}
	if _, err := Load(write(t, "draw:\n  secret_key: 4711\n")); err != nil {
		t.Errorf("the environment wins: %v", err)
	}
}

func TestAVariableMayNameAFileWithTheValue(t *testing.T) {
	const variable, url = "TRIPRIZE_POSTGRES_URL", "postgres://app:hunter2@db/triprize"
	file := variable + "_FILE=" + write(t, url+"\r\n")
	s, err := LoadFrom("", []string{file, "TRIPRIZE_WORKER_SHARDS_FILE=" + write(t, "7\n")})
	if err != nil || s.Postgres.URL != url || s.Worker.Shards != 7 {
		t.Errorf("got %q, %d, %v", s.Postgres.URL, s.Worker.Shards, err)
	}
	for reason, env := range map[string][]string{
		"setting postgres.url: TRIPRIZE_POSTGRES_URL and TRIPRIZE_POSTGRES_URL_FILE are both set": {file, variable + "=" + url},
		"setting postgres.url (TRIPRIZE_POSTGRES_URL_FILE): ":                                     {variable + "_FILE=" + url}, // its value
		"setting worker.shards (TRIPRIZE_WORKER_SHARDS_FILE)":                                     {file, "TRIPRIZE_WORKER_SHARDS_FILE=" + write(t, "many")},
	} {
		if _, err := LoadFrom("", env); err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: %v does not say %q, or repeats the secret", env, err, reason)
		}
	}
}

// Only binaries of tests may change a constant.
func TestAConstantIsNoSetting(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_LOCKS_TTL", "7s")
	s, err := Load("")
	if failpoint.Enabled {
		if err != nil || s.Locks.TTL != 7*time.Second {
			t.Errorf("got %s, %v", s.Locks.TTL, err)
		}
	} else if err == nil || !strings.Contains(err.Error(), "unknown setting TRIPRIZE_LOCKS_TTL") {
		t.Errorf("got %v", err)
	}
}

func TestEveryWayToWriteAValue(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_API_ASYNQMON_READ_ONLY", "false")
	t.Setenv("TRIPRIZE_WORKER_LISTEN", "") // empty is a value where a text may be empty
	t.Setenv("TRIPRIZE_HOLDS_MAX_PER_USER", "7")
	t.Setenv("TRIPRIZE_POSTGRES_MAX_CONNECTIONS", "20")
	t.Setenv("TRIPRIZE_REDIS_URL", "rediss://:pw@localhost:6379/0")
	t.Setenv("TRIPRIZE_POSTGRES_URL", "postgresql:///triprize?host=/run/postgresql")
	s, err := Load(write(t, "worker:\n  listen: 127.0.0.1:9090\n  Shards: 3\nscheduler:\nwallets: {}\ntokens:\n  max_lifetime: 1.5s\npostgres:\n  start_wait: 0\ncampaigns:\n  max_positions: 500500\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.API.AsynqmonReadOnly || s.Worker.Listen != "" || s.Holds.MaxPerUser != 7 || s.Postgres.MaxConnections != 20 || s.Worker.Shards != 3 ||
		s.Locks.URLs() != nil ||
		s.Tokens.MaxLifetime != 1500*time.Millisecond || s.Postgres.StartWait != 0 || s.Campaigns.MaxPositions != 500_500 {
		t.Errorf("got %+v", s)
	}
}

func TestTokensAreBelievedFromOneSourceWithIssuerAndAudience(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2-hunter2-" // 32 bytes
	const url = "https://issuer.example/keys"
	section(t, "tokens", map[string]row{
		"none":                   {file: "role_claim: kind"},
		"a secret":               {file: "hs256_secret: " + secret + "\n  issuer: i\n  audience: a"},
		"a URL":                  {file: "jwks_url: " + url + "\n  issuer: i\n  audience: a"},
		"both":                   {file: "hs256_secret: " + secret + "\n  jwks_url: " + url + "\n  issuer: i\n  audience: a", want: []string{"tokens.jwks_url", "TRIPRIZE_TOKENS_JWKS_URL", "excludes hs256_secret"}},
		"a secret alone":         {file: "hs256_secret: " + secret, want: []string{"tokens.issuer", "tokens.audience", "is required together with hs256_secret or jwks_url"}},
		"a URL without audience": {file: "jwks_url: " + url + "\n  issuer: i", want: []string{"tokens.audience", "is required together with"}},
		"a URL without issuer":   {file: "jwks_url: " + url + "\n  audience: a", want: []string{"tokens.issuer", "is required together with"}},
		"a secret of 31 bytes":   {file: "hs256_secret: " + secret[:31] + "\n  issuer: i\n  audience: a", want: []string{"tokens.hs256_secret", "at least 32 bytes"}},
		"no URL":                 {file: "jwks_url: file:///etc/" + secret + "\n  issuer: i\n  audience: a", want: []string{"tokens.jwks_url", "http:// or https://"}},
		"a client's own issuer":  {file: "client: shop-1\n  hs256_secret: " + secret + "\n  issuer: i\n  audience: a"},
		"a client, no issuer":    {file: "client: shop-1", want: []string{"tokens.client", "needs hs256_secret or jwks_url"}},
		"no client of a key":     {file: "client: Shop\n  hs256_secret: " + secret + "\n  issuer: i\n  audience: a", want: []string{"tokens.client", "must be the client of an API key"}},
		"our own client":         {file: "client: system\n  hs256_secret: " + secret + "\n  issuer: i\n  audience: a", want: []string{"tokens.client"}},
		"no claim for the role":  {file: "role_claim: ''", want: []string{"tokens.role_claim", "required"}},
		"a life without measure": {file: "max_lifetime: -1s", want: []string{"tokens.max_lifetime", "at least 0"}},
	})
}

func TestTheURLOfRedisNamesSentinelsOrACluster(t *testing.T) {
	for url, want := range map[string]string{
		"redis+sentinel://u:p@a:1/4?master_name=shop&addr=b:2&addr=[::1]:3&password=hunter2": "sentinel [a:1 b:2 [::1]:3] shop p 4",
		"rediss+cluster://u:p@a:1/0?addr=b:2":                                                "cluster [a:1 b:2] p",
		"redis://a:1,b:1/0":                                                                  "must name one host; further ones follow as &addr=host:port",
		"redis+sentinel://a:1":                                                               "?master_name=NAME",
		"redis+sentinel://a?master_name=shop":                                                "must have the port of Sentinel",
		"redis+sentinel://a:1?master_name=shop&replica_only=true":                            "must not read from replicas: remove replica_only",
		"redis+cluster://a:1?route_by_latency=true":                                          "must not read from replicas: remove read_only",
		"redis+cluster://a:1/1":                                                              "a Cluster has only 0",
		"redis+cluster://:hunter2@a:1?lames=7":                                               "no options but those of go-redis",
		"redis+shards://a:1":                                                                 "redis+cluster://",
	} {
		servers, err := Redis{URL: url}.Servers()
		got := fmt.Sprint(err)
		if o := servers.Sentinel; o != nil {
			got = fmt.Sprintf("sentinel %v %s %s %d", o.SentinelAddrs, o.MasterName, o.SentinelPassword, o.DB)
		} else if o := servers.Cluster; o != nil {
			got = fmt.Sprintf("cluster %v %s", o.Addrs, o.Password)
		}
		if got != want && (err == nil || !strings.Contains(got, want)) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got %s", url, got)
		}
	}
}

func TestAQuorumIsAnOddNumberOfDifferentServers(t *testing.T) {
	for urls, servers := range map[string]int{ // 0: refused
		"redis://a:1/0": 1,
		"redis://a:1/0,redis://b:1/0,rediss://:hunter2@c:1/0":         3,
		" redis://a , unix:///run/b.sock, unix:///run/c.sock?db=1 ":   3,
		"redis://a:1,redis://a:2,redis://a:3,redis://a:4,redis://a:5": 5,
		"redis://a:1/0,redis://b:1/0":                                 0,
		"redis://a:1/0,redis://b:1/0,redis://:hunter2@A:1/1":          0, // the same server
		"redis://a/0,redis://b:1/0,redis://a:6379/1":                  0,
		"redis://:1,redis://localhost:1,redis://b":                    0,
		"unix:///run/a.sock,unix:///run/a.sock?db=1,redis://b":        0,
		"redis://a:1/0,redis://b:1/0,":                                0,
		"redis://a:1/0,,redis://b:1/0":                                0,
		"redis://a:1/0,http://:hunter2@b:1/0,redis://c:1/0":           0,
		"redis://:hunter2@a:1/0x":                                     0,
		"redis:a":                                                     0,
		" ":                                                           0,
	} {
		required(t)
		t.Setenv("TRIPRIZE_LOCKS_REDIS_URLS", urls)
		s, err := Load("")
		switch {
		case servers > 0 && (err != nil || len(s.Locks.URLs()) != servers || strings.Contains(strings.Join(s.Locks.URLs(), ""), " ")):
			t.Errorf("%q: got %q, %v", urls, s.Locks.URLs(), err)
		case servers == 0 && (err == nil || !strings.Contains(err.Error(), "setting locks.redis_urls (TRIPRIZE_LOCKS_REDIS_URLS): must be the URLs of an odd number of different servers") ||
			strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%q: got %v", urls, err)
		}
	}
}

func TestTheFileNamesEverySettingWithAComment(t *testing.T) {
	lines := strings.Split(string(configs.Defaults), "\n")
	sections := reflect.TypeFor[Settings]()
	for i := range sections.NumField() {
		name := sections.Field(i).Tag.Get("mapstructure")
		at := slices.Index(lines, name+":")
		if at < 0 {
			for key := range fieldsOf(sections.Field(i).Type, name+".") {
				t.Errorf("the file has no section for %s", key)
			}
			continue
		}
		end := slices.Index(append(lines[at:], ""), "")
		commented(t, lines[at+1:at+end], name, "  ", sections.Field(i).Type)
	}
}

// commented looks in the lines of a section for every setting of it, each with a comment.
func commented(t *testing.T, lines []string, name, indent string, section reflect.Type) {
	t.Helper()
	for i := range section.NumField() {
		field := section.Field(i)
		own := field.Tag.Get("mapstructure")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, indent+own+":") })
		nested := field.Type.Kind() == reflect.Struct
		switch {
		case own == "-":
		case at < 0 || !nested && !strings.Contains(lines[at], " # "):
			t.Errorf("the file has no commented line for %s.%s", name, own)
		case nested:
			commented(t, lines[at+1:], name+"."+own, indent+"  ", field.Type)
		}
	}
}
