package cli

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestAnExportIsAFileWithTheBytesOfTheAPI(t *testing.T) {
	s := fleet.Start(t, fleet.Options{})
	t.Setenv("TRIPRIZE_POSTGRES_URL", s.Settings.Postgres.URL)
	t.Setenv("TRIPRIZE_REDIS_URL", s.Settings.Redis.URL)
	bought := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "mina"})
	fleet.WantSucceeded(t, s.AwaitJob(0, bought.ID))
	api := s.Do(0, s.Operator, http.MethodGet, "/v1/exports/purchases?from=2026-01-01&to=2090-01-01&zone=Asia/Tokyo&separator=semicolon", nil, nil)
	const line = "export purchases --from 2026-01-01 --to 2090-01-01 --zone Asia/Tokyo --separator semicolon"
	stdout := says(t, 0, line)
	if !strings.Contains(stdout, bought.ID.String()) || stdout != string(api.Body) {
		t.Errorf("the tool writes %q, the api %q", stdout, api.Body)
	}
	file := filepath.Join(t.TempDir(), "purchases.csv")
	says(t, 0, line+" --output "+file)
	if text, err := os.ReadFile(file); err != nil || string(text) != stdout {
		t.Errorf("%s, %v", text, err)
	}
	for _, there := range []string{filepath.Dir(file), "/dev/stdout", "/dev/null"} {
		says(t, 1, line+" --output "+there, there+" is not a regular file")
	}
	says(t, 0, "export wallets --as-of 2090-01-01 --format ndjson")
	says(t, 1, "export purchases --from 2026-01-01 --to 2090-01-01 --format pdf", "--format must be csv or ndjson")
	says(t, 1, "export sales --from 2026-01-01 --to 2090-01-01", "kind: must be one of")
	servers.Exec(t, s.DB, `ALTER TABLE refunds RENAME TO away`)
	says(t, 1, line+" --output "+file, "refunds")
	servers.Exec(t, s.DB, `ALTER TABLE away RENAME TO refunds`)
	if text, err := os.ReadFile(file); err != nil || string(text) != stdout {
		t.Errorf("a file that was complete is gone: %s, %v", text, err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("what is left: %v, %v", left, err)
	}
	var bar bytes.Buffer
	progressBar(&bar, "export")(1000, 0.5)
	if got := bar.String(); got != "\r\x1b[Kexport [###############...............]  50 %, 1000 rows" {
		t.Errorf("%q", got)
	}
}
