package apikey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
}

const (
	marker      = "tp"
	prefixBytes = 6
	secretBytes = 32
)

var clientName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Create makes a key and returns its full text. The text cannot be read again
// later.
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
	if err != nil {
		return "", fmt.Errorf("apikey.Create: %w", err)
	}
	return marker + "_" + prefix + "_" + secret, nil
}

// List returns every key, newest first.
func List(ctx context.Context, db postgres.DB) ([]Key, error) {
	rows, err := db.Query(ctx, `SELECT prefix, role, client, created_at, revoked_at FROM api_keys ORDER BY created_at DESC, prefix`)
	if err != nil {
		return nil, fmt.Errorf("apikey.List: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	if err != nil {
		return nil, fmt.Errorf("apikey.List: %w", err)
	}
	return keys, nil
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

// errUnknown is the same for every reason, so that callers do not learn which part was right.
func errUnknown() error {
	return fault.New(fault.Unauthenticated, "the API key is not known or was revoked")
}

// split parses the text of a key.
func split(text string) (prefix, secret string, ok bool) {
	parts := strings.Split(text, "_")
	if len(parts) != 3 || parts[0] != marker || len(parts[1]) != 2*prefixBytes || len(parts[2]) != 2*secretBytes {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// stored is a key with the hash of its secret.
type stored struct {
	Key
	hash []byte
}

func load(ctx context.Context, db postgres.DB, prefix string) (stored, error) {
	var s stored
	err := db.QueryRow(ctx, `SELECT prefix, role, client, created_at, revoked_at, secret_hash FROM api_keys WHERE prefix = $1`, prefix).
		Scan(&s.Prefix, &s.Role, &s.Client, &s.CreatedAt, &s.RevokedAt, &s.hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return stored{}, errUnknown()
	}
	if err != nil {
		return stored{}, fmt.Errorf("apikey.load: %w", err)
	}
	return s, nil
}

// admits reports whether secret belongs to the key and the key is not revoked.
// It compares in constant time.
func (s stored) admits(secret string) bool {
	digest := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(digest[:], s.hash) == 1 && s.RevokedAt == nil
}
