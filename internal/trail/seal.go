package trail

import (
	"context"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

const (
	// rowHash is the hash of a row: its members in one form for all sessions and releases. A row by a person, or that was approved by one, has more members.
	rowHash    = `sha256(convert_to(CASE WHEN issuer IS NULL AND approval_id IS NULL THEN json_build_array(` + rowMembers + `) ELSE json_build_array(` + rowMembers + `, issuer, subject, email, approval_id, approved_by::text) END::text, 'UTF8'))`
	rowMembers = `id, (extract(epoch FROM at) * 1000000)::bigint, operator, client, key_prefix, address, via, operation, target, job_id, reason, before::text, after::text`
	// noHash is the hash before the first seal.
	noHash = `decode(repeat('00', 32), 'hex')`
)

// Seals is the sweep that seals new rows, and logs each seal: who can change seals in the database cannot change a log
// that is kept elsewhere. A row that is gone before its seal leaves no trace.
func Seals(db postgres.Beginner, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Name: "trail-seals", Every: time.Hour, Interruptible: true, Counts: []string{"seals", "rows"}, Run: func(ctx context.Context, run sweep.Run) error {
		for range run.MaxBatches {
			seal, hash, rows, err := sealNew(ctx, db)
			if err != nil || rows == 0 {
				return err
			}
			run.Counts["seals"]++
			run.Counts["rows"] += rows
			logger.Info("the audit trail is sealed", "seal", seal, "rows", rows, "hash", hex.EncodeToString(hash))
		}
		return nil
	}}
}

// sealNew seals the oldest rows that have no seal; of none there is no seal. The lock lets one process seal at a time,
// and hinders nobody else: rows are written and read meanwhile.
func sealNew(ctx context.Context, db postgres.Beginner) (seal int64, hash []byte, rows int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE audit_seals IN SHARE ROW EXCLUSIVE MODE`); err != nil { // alone: to parse an insert locks the table, too
			return err
		}
		_, err := postgres.Found(tx.QueryRow(ctx, `
			WITH fresh AS MATERIALIZED (SELECT id, `+rowHash+` AS hash FROM audit_trail WHERE seal IS NULL ORDER BY id LIMIT $1),
			last AS (SELECT seal, hash FROM audit_seals UNION ALL SELECT 0, `+noHash+` ORDER BY seal DESC LIMIT 1),
			made AS (
				INSERT INTO audit_seals (seal, id, previous, hash, rows)
				SELECT last.seal + 1, $2, last.hash, sha256(last.hash || string_agg(fresh.hash, ''::bytea ORDER BY fresh.id)), count(*)
				FROM fresh, last GROUP BY last.seal, last.hash RETURNING seal, hash, rows),
			sealed AS (UPDATE audit_trail t SET seal = made.seal FROM made WHERE t.id = ANY(ARRAY(SELECT id FROM fresh)))
			SELECT seal, hash, rows FROM made`, 5000, uuidv7.New()).Scan(&seal, &hash, &rows))
		return err
	})
	return seal, hash, rows, fault.At(err, "trail.sealNew")
}

// Invariants are those of the audit trail.
var Invariants = []audit.Invariant{
	{Check: "audit_trail", Name: "the rows of the audit trail are as they were sealed", SQL: `
		SELECT format('seal %s, of %s rows, made at %s: %s', s.seal, s.rows, s.sealed_at, CASE WHEN t.n <> s.rows THEN 'it has ' || t.n || ' rows'
			WHEN s.hash <> sha256(s.previous || t.hashes) THEN 'a row has changed' ELSE 'the seal before has changed' END)
		FROM audit_seals s LEFT JOIN audit_seals p ON p.seal = s.seal - 1
		CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(string_agg(` + rowHash + `, ''::bytea ORDER BY id), '') AS hashes FROM audit_trail WHERE seal = s.seal) t
		WHERE s.id IS NOT NULL AND (t.n <> s.rows OR s.hash <> sha256(s.previous || t.hashes)
			OR s.previous IS DISTINCT FROM coalesce(p.hash, CASE WHEN s.seal = 1 THEN ` + noHash + ` END))`},
}

// Walk goes over the seals; those before them are there without an id, and not checked themselves.
var Walk = audit.Walk{Name: "audit-seals", Pace: 1000, Invariants: Invariants, Next: `SELECT id FROM audit_seals WHERE id > $1 ORDER BY id LIMIT 20`, Parts: `
	audit_seals AS MATERIALIZED (
		SELECT seal, id, previous, hash, rows, sealed_at FROM audit_seals WHERE id = ANY($2::uuid[])
		UNION ALL SELECT seal, NULL, previous, hash, rows, sealed_at FROM audit_seals
		WHERE seal = ANY(ARRAY(SELECT seal - 1 FROM audit_seals WHERE id = ANY($2))) AND id <> ALL($2))`}
