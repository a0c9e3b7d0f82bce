package key

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Role is what the holder of a key may do.
type Role string

// The roles of API keys.
const (
	Operator Role = "operator" // everything
	App      Role = "app"      // one trust domain: purchases of any user
)

// Key is one API key, without its secret.
type Key struct {
	Prefix    string     `json:"prefix"`
	Role      Role       `json:"role"`
	Client    string     `json:"client"` // the scope of idempotency keys; several keys may share it, for rotation
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	// LastUsedAt is when the key last authenticated somebody, to a minute or so; nil: never.
	LastUsedAt *time.Time `json:"last_used_at"`
}

const (
	marker      = "tp"
	prefixBytes = 6
	secretBytes = 32
)

// oneRole is the constraint that lets a client have keys of one role only.
const oneRole = "api_keys_client_role"

// insufficientPrivilege is Postgres' code for a statement that is not the role's.
const insufficientPrivilege = "42501"

var clientName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Create makes a key and returns its full text. The text cannot be read again
// later. db must be the owner's of the tables: a role of the fleet makes no keys.
func Create(ctx context.Context, db postgres.DB, role Role, client string) (string, error) {
	if role != Operator && role != App {
		return "", fmt.Errorf("apikey.Create: the role must be %s or %s, not %q", Operator, App, role)
	}
	if !clientName.MatchString(client) || client == "system" {
		return "", fmt.Errorf("apikey.Create: the client must be 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, and not \"system\"; got %q", client)
	}
	random := make([]byte, prefixBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	prefix, secret := hex.EncodeToString(random[:prefixBytes]), hex.EncodeToString(random[prefixBytes:])
	digest := sha256.Sum256([]byte(secret))
	_, err := db.Exec(ctx, `INSERT INTO api_keys (prefix, secret_hash, role, client) VALUES ($1, $2, $3, $4)`, prefix, digest[:], role, client)
	switch refused, _ := errors.AsType[*pgconn.PgError](err); {
	case refused == nil:
	case refused.ConstraintName == oneRole:
		return "", fmt.Errorf("apikey.Create: the client %q has or had keys of the other role, and all keys of a client have one role, "+
			"because they share its jobs and idempotency keys: choose another client name", client)
	case refused.Code == insufficientPrivilege:
		return "", fmt.Errorf("apikey.Create: only the owner of the tables makes keys: use the URL of the role that runs triprize migrate (%w)", err)
	}
	if err != nil {
		return "", fmt.Errorf("apikey.Create: %w", err)
	}
	return marker + "_" + prefix + "_" + secret, nil
}

// List returns every key, newest first.
func List(ctx context.Context, db postgres.DB) ([]Key, error) {
	rows, err := db.Query(ctx, `SELECT prefix, role, client, created_at, revoked_at, last_used_at FROM api_keys ORDER BY created_at DESC, prefix`)
	if err != nil {
		return nil, fmt.Errorf("apikey.List: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	return keys, fault.At(err, "apikey.List")
}

// Revoke ends a key; revoking twice is no error.
func Revoke(ctx context.Context, db postgres.DB, prefix string) error {
	tag, err := db.Exec(ctx, `UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE prefix = $1`, prefix)
	if err != nil {
		return fmt.Errorf("apikey.Revoke: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("apikey.Revoke: there is no key with the prefix %q", prefix)
	}
	return nil
}

// CheckSuccessor returns what is wrong with a key that is to have what another one has made: both must
// be of one client, and it must not be revoked. It stays so until tx ends.
func CheckSuccessor(ctx context.Context, tx pgx.Tx, prefix, successor string) error {
	var fits bool
	err := tx.QueryRow(ctx, `
		SELECT count(*) > 0 FROM (
			SELECT FROM api_keys k WHERE prefix = $2 AND prefix <> $1 AND revoked_at IS NULL
			AND client = (SELECT client FROM api_keys o WHERE o.prefix = $1) FOR SHARE OF k) h`, prefix, successor).Scan(&fits)
	switch {
	case err != nil:
		return fmt.Errorf("apikey.CheckSuccessor: %w", err)
	case !fits:
		return fmt.Errorf("apikey.CheckSuccessor: %q is no other key of the same client, or it is revoked", successor)
	}
	return nil
}

// errUnknown is the same for every reason, so that callers do not learn which part was right.
func errUnknown() error {
	return fault.New(fault.Unauthenticated, "the API key is not known or was revoked")
}

// form is that of every key. Other texts need no look-up.
var form = regexp.MustCompile(fmt.Sprintf(`^%s_([0-9a-f]{%d})_([0-9a-f]{%d})$`, marker, 2*prefixBytes, 2*secretBytes))

// split parses the text of a key.
func split(text string) (prefix, secret string, ok bool) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// stored is a key with the hash of its secret.
type stored struct {
	Key
	hash []byte
}

// load returns the keys with some prefixes, in their order; those that do not exist are
// left empty.
func load(ctx context.Context, db postgres.DB, prefixes []string) ([]stored, error) {
	rows, err := db.Query(ctx, `SELECT prefix, role, client, created_at, revoked_at, secret_hash FROM api_keys WHERE prefix = ANY($1)`, prefixes)
	if err != nil {
		return nil, fmt.Errorf("apikey.load: %w", err)
	}
	found := make(map[string]stored, len(prefixes))
	var s stored
	_, err = pgx.ForEachRow(rows, []any{&s.Prefix, &s.Role, &s.Client, &s.CreatedAt, &s.RevokedAt, &s.hash}, func() error {
		one := s
		one.hash = slices.Clone(s.hash)
		found[s.Prefix] = one
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("apikey.load: %w", err)
	}
	keys := make([]stored, len(prefixes))
	for i, prefix := range prefixes {
		keys[i] = found[prefix]
	}
	return keys, nil
}

// admits reports whether secret belongs to the key and the key is not revoked.
// It compares in constant time.
func (s stored) admits(secret string) bool {
	digest := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(digest[:], s.hash) == 1 && s.RevokedAt == nil
}

// recent keeps what was looked up for a time. It has no goroutine, unlike the expirable cache
// of the same library, which wakes a hundred times in that time: an idle api would spend most
// of its processor time on it. What is over stays until it is replaced or evicted.
type recent[V any] struct {
	entries *lru.Cache[string, dated[V]]
	ttl     time.Duration
}

type dated[V any] struct {
	value V
	until time.Time
}

func newRecent[V any](ttl time.Duration) *recent[V] {
	entries, _ := lru.New[string, dated[V]](cached) // fails only for a size of 0
	return &recent[V]{entries, ttl}
}

func (r *recent[V]) add(prefix string, value V) {
	r.entries.Add(prefix, dated[V]{value, time.Now().Add(r.ttl)})
}

func (r *recent[V]) get(prefix string) (value V, ok bool) {
	d, ok := r.entries.Get(prefix)
	return d.value, ok && time.Now().Before(d.until)
}

const (
	// usesEvery is how often a process writes that a key was used, at most.
	usesEvery = time.Minute
	// usesPause is the time between two writes at least. All keys that are due share one.
	usesPause = 5 * time.Second
	// usesKept bounds the keys that wait to be written; the uses of others are forgotten.
	usesKept = cached
	// usesTimeout bounds a write, also the one at the end of a process.
	usesTimeout = 2 * time.Second
)

// uses notes in the background when keys were used. A request only looks at a map; it
// never waits for the database. Uses that cannot be written wait for the next time.
type uses struct {
	db    postgres.DB
	noted sync.Map      // prefix → time.Time of the use that was noted last
	some  chan struct{} // capacity 1: there is something to write
	end   chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	pending map[string]time.Time // noted and not written
}

func newUses(db postgres.DB) *uses {
	u := &uses{db: db, some: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{}), pending: make(map[string]time.Time)}
	go u.run()
	return u
}

// note notes that a key is used now, unless that was noted less than usesEvery ago.
func (u *uses) note(prefix string) {
	now := time.Now()
	if u.isNoted(prefix, now) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) >= usesKept || u.isNoted(prefix, now) {
		return
	}
	u.pending[prefix] = now
	u.noted.Store(prefix, now)
	u.kick()
}

func (u *uses) isNoted(prefix string, now time.Time) bool {
	at, known := u.noted.Load(prefix)
	return known && now.Sub(at.(time.Time)) < usesEvery //nolint:forcetypeassert // note stores nothing else
}

// kick says that there is something to write.
func (u *uses) kick() {
	select {
	case u.some <- struct{}{}:
	default:
	}
}

// close writes what is noted and ends.
func (u *uses) close() {
	close(u.end)
	<-u.done
}

func (u *uses) run() {
	defer close(u.done)
	defer u.write()
	for {
		select {
		case <-u.some:
		case <-u.end:
			return
		}
		u.write()
		pause := time.NewTimer(usesPause)
		select {
		case <-pause.C:
		case <-u.end:
			pause.Stop()
			return
		}
	}
}

// write writes what is pending, and keeps it when that fails. It forgets what was noted so
// long ago that it no longer counts.
func (u *uses) write() {
	u.noted.Range(func(key, _ any) bool {
		if !u.isNoted(key.(string), time.Now()) { //nolint:forcetypeassert // note stores nothing else
			u.noted.Delete(key)
		}
		return true
	})
	u.mu.Lock()
	batch := u.pending
	u.pending = make(map[string]time.Time)
	u.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), usesTimeout)
	defer cancel()
	if recordUses(ctx, u.db, batch) == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for prefix, at := range batch {
		if _, newer := u.pending[prefix]; !newer && len(u.pending) < usesKept {
			u.pending[prefix] = at
		}
	}
	u.kick()
}

// recordUses sets when keys were last used. A key that another process has just noted is
// left alone, and so is one that is locked: the holder of the lock notes it too, or revokes it.
func recordUses(ctx context.Context, db postgres.DB, at map[string]time.Time) error {
	prefixes, ages := make([]string, 0, len(at)), make([]float64, 0, len(at)) // seconds: the clock that counts is the database's
	for prefix, used := range at {
		prefixes, ages = append(prefixes, prefix), append(ages, time.Since(used).Seconds())
	}
	_, err := db.Exec(ctx, `
		WITH used AS (
			SELECT k.prefix, clock_timestamp() - u.age * interval '1 second' AS at
			FROM api_keys k JOIN unnest($1::text[], $2::float8[]) AS u (prefix, age) ON k.prefix = u.prefix
			WHERE k.last_used_at IS NULL OR k.last_used_at <= clock_timestamp() - (u.age + $3) * interval '1 second'
			FOR NO KEY UPDATE OF k SKIP LOCKED)
		UPDATE api_keys k SET last_used_at = used.at FROM used WHERE k.prefix = used.prefix`, prefixes, ages, (usesEvery / 2).Seconds())
	return fault.At(err, "apikey.recordUses")
}
