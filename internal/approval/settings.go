package approval

import (
	"context"
	"encoding/json"
	"hash/crc32"
	"slices"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Settings are those of approvals as the trail has them.
type Settings struct {
	Required []string         `json:"required"`
	Above    map[string]int64 `json:"above"` // minor units, by currency
	By       string           `json:"by"`
}

// SettingsOf returns settings in one form.
func SettingsOf(required []string, above map[string]int64, by string) Settings {
	return Settings{slices.Compact(slices.Sorted(slices.Values(required))), above, by}
}

func (s Settings) text() string {
	text, _ := json.Marshal(s) // maps are sorted
	return string(text)
}

// Hash tells settings apart.
func (s Settings) Hash() uint32 { return crc32.ChecksumIEEE([]byte(s.text())) }

// RecordSettings writes the settings with which an api starts into the trail, unless the last one that started has the same.
// The first row is of the first api that requires an approval.
func RecordSettings(ctx context.Context, db postgres.Beginner, now Settings, host string) error {
	actor := trail.Actor{Client: "system", Via: "system", Address: host, Operation: "approvals settings", Target: "approvals"}
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('approvals', 2))`); err != nil { // or two would compare at once
			return err
		}
		var last *Settings
		_, err := postgres.Found(tx.QueryRow(ctx, `SELECT after -> 'approvals' FROM audit_trail WHERE target = $1 AND via = $2 ORDER BY at DESC LIMIT 1`, actor.Target, actor.Via).Scan(&last))
		if err != nil || last == nil && len(now.Required) == 0 || last != nil && last.text() == now.text() {
			return err
		}
		return trail.Write(trail.With(ctx, &actor), tx, map[string]any{"approvals": last}, map[string]any{"approvals": now})
	})
	return fault.At(err, "approval.RecordSettings")
}
