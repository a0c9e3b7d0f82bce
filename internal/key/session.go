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
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

const (
	// SessionIdle is how long a session lasts without a request of its operator.
	SessionIdle = 30 * time.Minute
	// SessionLength is how long a session lasts at most.
	SessionLength = 12 * time.Hour
	// RolesFor is how long the roles of a person are believed: who was removed at the provider is out after it.
	RolesFor = time.Hour
	// seenPause is how often the last request of a session is written.
	seenPause = time.Minute

	// knownPatience bounds the query for a session that is cached.
	knownPatience = 3 * time.Second

	longestName    = 100
	sessionsAtOnce = 1000 // that are cached
)

// Approver is the role of persons who say yes or no to what needs a second yes. No key has it.
const Approver Role = "approver"

// Person is who has signed in with an account: issuer and subject together.
type Person struct {
	Issuer, Subject string
	Email           string // as the provider says it; empty: it does not
	Roles           []Role
}

// Name is how a person is shown: the e-mail, or else the subject.
func (p Person) Name() string {
	name := []rune(cmp.Or(p.Email, p.Subject))
	return string(name[:min(len(name), longestName)])
}

// Session is somebody who is signed in to the console.
type Session struct {
	Operator  string    // the name of a person; beside a key the one that was given at the sign-in, which proves nothing
	KeyPrefix string    // empty: of a person
	Client    string    // of the key, or trail.Persons; empty: there is no session
	Person              // its roles are those of the key, if there is one
	CheckedAt time.Time // when the provider has said the roles
	CreatedAt time.Time
	SeenAt    time.Time
}

// Has reports whether somebody has a role. Operators and approvers are viewers, too.
func (s Session) Has(role Role) bool {
	return slices.Contains(s.Roles, role) || role == Viewer && len(s.Roles) > 0
}

// IsPerson reports whether an account, and no key, has opened the session.
func (s Session) IsPerson() bool { return s.Subject != "" }

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
// codes unauthenticated (of the key), forbidden (the key is an app's) and invalid-request (/operator). If ctx has an actor, the
// sign-in is recorded.
func (s *Sessions) Open(ctx context.Context, key, operator string) (opened Session, cookie string, err error) {
	operator = strings.TrimSpace(operator)
	if n := utf8.RuneCountInString(operator); n == 0 || n > longestName || !utf8.ValidString(operator) || strings.ContainsFunc(operator, unicode.IsControl) {
		return opened, "", fault.Invalid(fault.Field{Pointer: "/operator", Detail: fmt.Sprintf("must be a name of 1 to %d characters", longestName)})
	}
	k, err := s.keys.Verify(ctx, strings.TrimSpace(key))
	if err != nil {
		return opened, "", err
	}
	if k.Role == App {
		return opened, "", fault.New(fault.Forbidden, "this is the key of an app; the console needs the key of an operator or a viewer")
	}
	if a := trail.Of(ctx); a != nil {
		a.Operator, a.Client, a.KeyPrefix, a.Target = operator, k.Client, k.Prefix, k.Prefix
	}
	opened = Session{Operator: operator, KeyPrefix: k.Prefix, Client: k.Client, Person: Person{Roles: []Role{k.Role}}}
	cookie, err = s.store(ctx, opened)
	return opened, cookie, err
}

// OpenFor opens the session of a person who has a role, and returns it and the value of its cookie.
func (s *Sessions) OpenFor(ctx context.Context, p Person) (opened Session, cookie string, err error) {
	opened = Session{Operator: p.Name(), Client: trail.Persons, Person: p}
	cookie, err = s.store(ctx, opened)
	return opened, cookie, err
}

func (s *Sessions) store(ctx context.Context, opened Session) (cookie string, err error) {
	token := rand.Text()
	hash := sha256.Sum256([]byte(token))
	roles := opened.Roles
	if !opened.IsPerson() { // they are its key's, as that is now
		roles = nil
	}
	var b pgx.Batch
	b.Queue(`DELETE FROM console_sessions WHERE created_at < clock_timestamp() - $1 * interval '1 second'`, SessionLength.Seconds())
	b.Queue(`INSERT INTO console_sessions (token_hash, key_prefix, operator, issuer, subject, email, roles)
		VALUES ($1, nullif($2, ''), $3, nullif($4, ''), nullif($5, ''), nullif($6, ''), $7)`, hash[:], opened.KeyPrefix, opened.Operator, opened.Issuer, opened.Subject, opened.Email, roles)
	if a := trail.Of(ctx); a != nil {
		b.Queue(trail.Insert("$1"), trail.Rows(a.Entry(uuid.Nil, nil, nil)))
	}
	if err := s.db.SendBatch(ctx, &b).Close(); err != nil {
		return "", fmt.Errorf("key.Sessions: %w", err)
	}
	return token + "." + s.macOf(token), nil
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
	isStale := cached.IsPerson() && time.Since(cached.CheckedAt) > RolesFor // another api may have renewed it
	if isKnown && !renew && !isStale && time.Since(cached.readAt) < s.keys.ttl {
		return cached.Session, nil
	}
	const valid = ` s.token_hash = $1 AND (s.key_prefix IS NULL OR k.prefix IS NOT NULL)
		AND s.seen_at > clock_timestamp() - $2 * interval '1 second' AND s.created_at > clock_timestamp() - $3 * interval '1 second'`
	const columns = ` s.operator, coalesce(s.key_prefix, ''), coalesce(k.client, '` + trail.Persons + `'), coalesce(s.issuer, ''), coalesce(s.subject, ''), coalesce(s.email, ''),
		coalesce(s.roles, ARRAY[k.role]), extract(epoch FROM clock_timestamp() - s.checked_at)::float8, s.created_at, s.seen_at`
	const key = ` LEFT JOIN api_keys k ON k.prefix = s.key_prefix AND k.revoked_at IS NULL`
	sql := `SELECT` + columns + ` FROM console_sessions s` + key + ` WHERE` + valid
	if renew {
		sql = `WITH s AS (UPDATE console_sessions s SET seen_at = clock_timestamp() FROM (SELECT s.token_hash FROM console_sessions s` + key + ` WHERE` + valid + `) found
			WHERE s.token_hash = found.token_hash RETURNING s.*) SELECT` + columns + ` FROM s` + key
	}
	if isKnown { // a page that moves must not wait for a database that hangs
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, knownPatience)
		defer cancel()
	}
	var found Session
	var checked float64 // seconds ago, by the database's clock
	err := s.db.QueryRow(ctx, sql, hash[:], SessionIdle.Seconds(), SessionLength.Seconds()).
		Scan(&found.Operator, &found.KeyPrefix, &found.Client, &found.Issuer, &found.Subject, &found.Email, &found.Roles, &checked, &found.CreatedAt, &found.SeenAt)
	found.CheckedAt = time.Now().Add(-time.Duration(checked * float64(time.Second)))
	switch {
	case err == nil:
		s.known.Add(hash, cachedSession{found, time.Now()})
		if renew && found.KeyPrefix != "" {
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

// Renew records what the provider says of a person now. It reports false if the cookie's session has ended, or is somebody else's.
func (s *Sessions) Renew(ctx context.Context, cookie string, p Person) (renewed bool, err error) {
	hash, ok := s.hashOf(cookie)
	if !ok {
		return false, nil
	}
	tag, err := s.db.Exec(ctx, `
		UPDATE console_sessions SET operator = $4, email = nullif($5, ''), roles = $6, checked_at = clock_timestamp(), seen_at = clock_timestamp()
		WHERE token_hash = $1 AND issuer = $2 AND subject = $3
		  AND seen_at > clock_timestamp() - $7 * interval '1 second' AND created_at > clock_timestamp() - $8 * interval '1 second'`,
		hash[:], p.Issuer, p.Subject, p.Name(), p.Email, p.Roles, SessionIdle.Seconds(), SessionLength.Seconds())
	s.known.Remove(hash)
	return tag.RowsAffected() == 1, fault.At(err, "key.Sessions.Renew")
}

// NoteRoles records which roles the provider says that a person has now, none as well: see [MayOperate].
func (s *Sessions) NoteRoles(ctx context.Context, p Person) error {
	if len(p.Roles) == 0 { // whoever has an account at the provider leaves no row
		_, err := s.db.Exec(ctx, `UPDATE console_persons SET roles = '{}', checked_at = clock_timestamp() WHERE issuer = $1 AND subject = $2`, p.Issuer, p.Subject)
		return fault.At(err, "key.Sessions.NoteRoles")
	}
	_, err := s.db.Exec(ctx, `INSERT INTO console_persons (issuer, subject, roles) VALUES ($1, $2, $3)
		ON CONFLICT (issuer, subject) DO UPDATE SET roles = excluded.roles, checked_at = clock_timestamp()`, p.Issuer, p.Subject, p.Roles)
	return fault.At(err, "key.Sessions.NoteRoles")
}

// MayOperate reports whether who has asked for something earlier still may: its key, by prefix, is an operator's and not
// revoked; or, without a key, the person had the role when the provider said it last.
func MayOperate(ctx context.Context, db postgres.DB, keyPrefix, issuer, subject string) (may bool, err error) {
	err = db.QueryRow(ctx, `SELECT CASE WHEN $1 <> '' THEN EXISTS (SELECT FROM api_keys WHERE prefix = $1 AND role = 'operator' AND revoked_at IS NULL)
		ELSE EXISTS (SELECT FROM console_persons WHERE issuer = $2 AND subject = $3 AND 'operator' = ANY(roles)) END`, keyPrefix, issuer, subject).Scan(&may)
	return may, fault.At(err, "key.MayOperate")
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
