// Package key owns the API keys of apps and operators: tp_<prefix>_<secret>.
//
// [Create], [List] and [Revoke] manage them; a [Verifier] checks them. The database has
// the prefix and the SHA-256 of the secret. The secret is shown once. It has 256 random
// bits, so a slow password hash would add no protection. All keys of a client have one
// role (table api_clients).
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
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Role is what the holder of a key may do.
type Role string

// The roles of API keys.
const (
	Operator Role = "operator" // everything
	Viewer   Role = "viewer"   // reads what an operator reads, and changes nothing
	App      Role = "app"      // one trust domain: purchases of any user
)

// Key is one API key. It has the hash of its secret only.
type Key struct {
	Prefix    string     `json:"prefix"`
	Role      Role       `json:"role"`
	Client    string     `json:"client"` // the scope of idempotency keys; several keys may share it, for rotation
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	// LastUsedAt is when the key last authenticated a caller, to about a minute; nil: never.
	LastUsedAt *time.Time `json:"last_used_at"`

	hash []byte
}

const columns = `prefix, role, client, created_at, revoked_at, last_used_at, secret_hash`

func scan(row pgx.CollectableRow) (k Key, err error) {
	err = row.Scan(&k.Prefix, &k.Role, &k.Client, &k.CreatedAt, &k.RevokedAt, &k.LastUsedAt, &k.hash)
	return k, err
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

// reserved are clients that are no key's: see package job.
var reserved = []string{"system", "all", trail.Persons}

// Create makes a key and returns its full text. The text cannot be read again
// later. db must be the owner's of the tables: a role of the fleet makes no keys.
func Create(ctx context.Context, db postgres.DB, role Role, client string) (string, error) {
	if role != Operator && role != Viewer && role != App {
		return "", fmt.Errorf("key.Create: the role must be %s, %s or %s, not %q", Operator, Viewer, App, role)
	}
	if !clientName.MatchString(client) || slices.Contains(reserved, client) {
		return "", fmt.Errorf("key.Create: the client must be 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, and none of %s; got %q", strings.Join(reserved, ", "), client)
	}
	random := make([]byte, prefixBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	prefix, secret := hex.EncodeToString(random[:prefixBytes]), hex.EncodeToString(random[prefixBytes:])
	digest := sha256.Sum256([]byte(secret))
	_, err := db.Exec(ctx, `INSERT INTO api_keys (prefix, secret_hash, role, client) VALUES ($1, $2, $3, $4)`, prefix, digest[:], role, client)
	switch refused, _ := errors.AsType[*pgconn.PgError](err); {
	case refused == nil:
	case refused.ConstraintName == oneRole:
		return "", fmt.Errorf("key.Create: the client %q has or had keys of another role, and all keys of a client have one role, "+
			"because they share its jobs and idempotency keys: choose another client name", client)
	case refused.Code == insufficientPrivilege:
		return "", fmt.Errorf("key.Create: only the owner of the tables makes keys: use the URL of the role that runs triprize migrate (%w)", err)
	}
	if err != nil {
		return "", fmt.Errorf("key.Create: %w", err)
	}
	return marker + "_" + prefix + "_" + secret, nil
}

// IsClient reports whether a client has or had a key.
func IsClient(ctx context.Context, db postgres.DB, name string) (is bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM api_clients WHERE name = $1)`, name).Scan(&is)
	return is, fault.At(err, "key.IsClient")
}

// List returns every key, newest first.
func List(ctx context.Context, db postgres.DB) ([]Key, error) {
	keys, err := postgres.Collect(ctx, db, scan, `SELECT `+columns+` FROM api_keys ORDER BY created_at DESC, prefix`)
	return keys, fault.At(err, "key.List")
}

// Revoke ends a key; revoking twice is no error. end (webhook.KeyRevoked) ends what the key has made, and returns how much
// that was, or gives it to successor: that is empty, or another key of the client that is not revoked. A prefix of no
// key is a not-found Error.
func Revoke(ctx context.Context, db postgres.Beginner, prefix, successor string, end func(context.Context, pgx.Tx, string, string) (int, error)) (revoked Key, ended int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) (err error) {
		revoked, err = postgres.CollectOne(ctx, tx, scan, `UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE prefix = $1 RETURNING `+columns, prefix)
		if errors.Is(err, pgx.ErrNoRows) {
			err = fault.New(fault.NotFound, "there is no key with the prefix %q", prefix)
		}
		if err == nil && successor != "" {
			err = checkSuccessor(ctx, tx, prefix, successor)
		}
		if err == nil {
			ended, err = end(ctx, tx, prefix, successor)
		}
		if err != nil {
			return err
		}
		return trail.Write(ctx, tx, nil, map[string]any{"revoked": true, "endpoints": ended, "successor": successor})
	})
	return revoked, ended, fault.At(err, "key.Revoke")
}

func checkSuccessor(ctx context.Context, db postgres.DB, prefix, successor string) error {
	var fits bool
	err := db.QueryRow(ctx, `
		SELECT count(*) > 0 FROM (
			SELECT FROM api_keys k WHERE prefix = $2 AND prefix <> $1 AND revoked_at IS NULL
			AND client = (SELECT client FROM api_keys o WHERE o.prefix = $1) FOR SHARE OF k) h`, prefix, successor).Scan(&fits)
	if err == nil && !fits {
		err = fault.Invalid(fault.Field{Pointer: "/transfer_endpoints_to", Detail: fmt.Sprintf("%q is no other key of the same client, or it is revoked", successor)})
	}
	return err
}

// errUnknown is the same for every reason, so that callers do not learn which part was right.
var errUnknown = fault.New(fault.Unauthenticated, "the API key is not known or was revoked")

// split parses the text of a key. Other texts need no query.
func split(text string) (prefix, secret string, ok bool) {
	text, ok = strings.CutPrefix(text, marker+"_")
	prefix, secret, _ = strings.Cut(text, "_")
	return prefix, secret, ok && isHex(prefix, prefixBytes) && isHex(secret, secretBytes)
}

func isHex(text string, bytes int) bool {
	return len(text) == 2*bytes && strings.Trim(text, "0123456789abcdef") == ""
}

// load returns the keys with these prefixes, in their order; those that do not exist are
// left empty.
func load(ctx context.Context, db postgres.DB, prefixes []string) ([]Key, error) {
	found, err := postgres.Collect(ctx, db, scan, `SELECT `+columns+` FROM api_keys WHERE prefix = ANY($1)`, prefixes)
	if err != nil {
		return nil, fmt.Errorf("key.load: %w", err)
	}
	known := make(map[string]Key, len(found))
	for _, k := range found {
		known[k.Prefix] = k
	}
	keys := make([]Key, len(prefixes))
	for i, prefix := range prefixes {
		keys[i] = known[prefix]
	}
	return keys, nil
}

// admits reports whether secret belongs to the key and the key is not revoked.
// It compares in constant time.
func (k Key) admits(secret string) bool {
	digest := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(digest[:], k.hash) == 1 && k.RevokedAt == nil
}
