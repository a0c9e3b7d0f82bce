package stripesim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/testkit/servers"
)

func TestAKilledSandboxGoesOnWhereItWas(t *testing.T) {
	s := open(t, Settings{Dir: filepath.Join(t.TempDir(), "first"), WebhookURL: "http://127.0.0.1:1/", WebhookSecret: testSecret})
	s.tell(`paid pm_card_createDispute; create pm_card_visa key=k; create pm_sandbox_processing; confirm → processing`)
	written, err := os.ReadFile(filepath.Join(s.server.settings.Dir, journalFile))
	servers.NoError(t, err)
	killed := t.TempDir()
	servers.NoError(t, os.WriteFile(filepath.Join(killed, journalFile), append(written, `[{"k":"tor`...), 0o600))
	events := s.server.Totals().Events
	s.start(Settings{Dir: killed, WebhookURL: s.server.settings.WebhookURL, WebhookSecret: testSecret})
	if got := s.server.Totals(); got.Events != events || got.Unsent != events {
		t.Errorf("%+v, want %d events", got, events)
	}
	s.tell(`fetch → processing
		create pm_card_visa key=k → requires_confirmation replayed
		totals → 500 of 0, 3 intents, 1 charges
		advance 2h; totals → 1000 of 0, 3 intents, 2 charges`)
	if n := s.server.Totals().Disputed; n != 1 {
		t.Errorf("%d disputes", n)
	}
}

func TestAFolderOfAnotherVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	servers.NoError(t, os.WriteFile(filepath.Join(dir, journalFile), []byte(`[{"k":"other","i":"o_1","v":{}}]`+"\n"), 0o600))
	if _, err := New(Settings{Key: testKey, Dir: dir}); err == nil || !strings.Contains(err.Error(), `"other": another version of the sandbox wrote this folder; delete it`) {
		t.Error(err)
	}
}
