package key

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

const (
	// SessionIdle is how long a session lasts without a request of its operator.
	SessionIdle = 30 * time.Minute
	// SessionLength is how long a session lasts at most.
	SessionLength = 12 * time.Hour
	// seenPause is how often the last request of a session is written.
	seenPause = time.Minute

	// knownPatience bounds the query for a session that is cached.
	knownPatience = 3 * time.Second

	longestName    = 100
	sessionsAtOnce = 1000 // that are cached
)

// Session is an operator who is signed in to the console.
type Session struct {
	Operator  string // the name that was given at the sign-in; it proves nothing
	KeyPrefix string
	Client    string
	CreatedAt time.Time
	SeenAt    time.Time
}

// Sessions opens and checks the sessions of the console. The database has the hash of a session's random token; its
// cookie also has a MAC of the token, whose key the database has not. So a row opens nothing.
type Sessions struct {
	db    postgres.DB
	keys  *Verifier
	mac   []byte
	known *lru.Cache[[sha256.Size]byte, cachedSession] // by the hash of the token
}

// cachedSession saves a query for each request of a page that polls. While the database is away it is the session.
type cachedSession struct {
	Session
	readAt time.Time
}

// NewSessions returns the sessions of keys. secret is known to all apis, and not to the database; without one the
// cookies of this process are valid at this process only.
func NewSessions(db postgres.DB, keys *Verifier, secret string) *Sessions {
	derived := hmac.New(sha256.New, []byte(cmp.Or(secret, rand.Text())))
	derived.Write([]byte("triprize console session"))
	known, _ := lru.New[[sha256.Size]byte, cachedSession](sessionsAtOnce) // fails only for a size of 0
	return &Sessions{db: db, keys: keys, mac: derived.Sum(nil), known: known}
}

// Open opens a session with the text of an operator's key, and returns it and the value of its cookie. The errors have the
// codes unauthenticated (of the key), forbidden (the key is an app's) and invalid-request (/operator).
func (s *Sessions) Open(ctx context.Context, key, operator string) (opened Session, cookie string, err error) {
	operator = strings.TrimSpace(operator)
	if n := utf8.RuneCountInString(operator); n == 0 || n > longestName || !utf8.ValidString(operator) || strings.ContainsFunc(operator, unicode.IsControl) {
		return opened, "", fault.Invalid(fault.Field{Pointer: "/operator", Detail: fmt.Sprintf("must be a name of 1 to %d characters", longestName)})
	}
	k, err := s.keys.Verify(ctx, strings.TrimSpace(key))
	if err != nil {
		return opened, "", err
	}
	if k.Role != Operator {
		return opened, "", fault.New(fault.Forbidden, "this is the key of an app; the console needs an operator's key")
	}
	token := rand.Text()
	hash := sha256.Sum256([]byte(token))
	var b pgx.Batch
	b.Queue(`DELETE FROM console_sessions WHERE created_at < clock_timestamp() - $1 * interval '1 second'`, SessionLength.Seconds())
	b.Queue(`INSERT INTO console_sessions (token_hash, key_prefix, operator) VALUES ($1, $2, $3)`, hash[:], k.Prefix, operator)
	if err := s.db.SendBatch(ctx, &b).Close(); err != nil {
		return opened, "", fmt.Errorf("key.Sessions.Open: %w", err)
	}
	return Session{Operator: operator, KeyPrefix: k.Prefix, Client: k.Client}, token + "." + s.macOf(token), nil
}

func (s *Sessions) macOf(token string) string {
	h := hmac.New(sha256.New, s.mac)
	h.Write([]byte(token))
	return hex.EncodeToString(h.Sum(nil))
}

// errSignedOut is the same for every reason.
var errSignedOut = fault.New(fault.Unauthenticated, "the session has ended; sign in again")

// hashOf returns the hash of the token in a cookie, and whether that is ours.
func (s *Sessions) hashOf(cookie string) (hash [sha256.Size]byte, ok bool) {
	token, mac, _ := strings.Cut(cookie, ".")
	return sha256.Sum256([]byte(token)), hmac.Equal([]byte(mac), []byte(s.macOf(token)))
}

// Find returns the session of a cookie, or an unauthenticated Error. byOperator: the request is the operator's own, and
// not that of an open page; it keeps the session alive. While the database is away a session that was found before
// goes on until it would have been idle too long.
func (s *Sessions) Find(ctx context.Context, cookie string, byOperator bool) (Session, error) {
	hash, ok := s.hashOf(cookie)
	if !ok {
		return Session{}, errSignedOut
	}
	cached, isKnown := s.known.Get(hash)
	renew := byOperator && time.Since(cached.SeenAt) > seenPause
	if isKnown && !renew && time.Since(cached.readAt) < s.keys.ttl {
		return cached.Session, nil
	}
	const valid = ` s.token_hash = $1 AND k.prefix = s.key_prefix AND k.revoked_at IS NULL
		AND s.seen_at > clock_timestamp() - $2 * interval '1 second' AND s.created_at > clock_timestamp() - $3 * interval '1 second'`
	const columns = ` s.operator, s.key_prefix, k.client, s.created_at, s.seen_at`
	sql := `SELECT` + columns + ` FROM console_sessions s, api_keys k WHERE` + valid
	if renew {
		sql = `UPDATE console_sessions s SET seen_at = clock_timestamp() FROM api_keys k WHERE` + valid + ` RETURNING` + columns
	}
	if isKnown { // a page that moves must not wait for a database that hangs
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, knownPatience)
		defer cancel()
	}
	var found Session
	err := s.db.QueryRow(ctx, sql, hash[:], SessionIdle.Seconds(), SessionLength.Seconds()).
		Scan(&found.Operator, &found.KeyPrefix, &found.Client, &found.CreatedAt, &found.SeenAt)
	switch {
	case err == nil:
		s.known.Add(hash, cachedSession{found, time.Now()})
		if renew {
			s.keys.uses.note(found.KeyPrefix)
		}
		return found, nil
	case errors.Is(err, pgx.ErrNoRows):
		s.known.Remove(hash)
		return Session{}, errSignedOut
	case isKnown && postgres.IsTransient(err) && time.Since(cached.SeenAt) < SessionIdle && time.Since(cached.CreatedAt) < SessionLength:
		s.known.Add(hash, cachedSession{cached.Session, time.Now()})
		return cached.Session, nil
	}
	return Session{}, fmt.Errorf("key.Sessions.Find: %w", err)
}

// Close ends the session of a cookie. At the other apis it ends within the time for which keys are cached.
func (s *Sessions) Close(ctx context.Context, cookie string) error {
	hash, ok := s.hashOf(cookie)
	if !ok {
		return nil
	}
	s.known.Remove(hash)
	_, err := s.db.Exec(ctx, `DELETE FROM console_sessions WHERE token_hash = $1`, hash[:])
	return fault.At(err, "key.Sessions.Close")
}
