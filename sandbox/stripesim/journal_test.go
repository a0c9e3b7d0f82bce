package stripesim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// reopen closes a sandbox and starts another one with its folder.
func (s *shop) reopen(settings Settings) *shop {
	s.t.Helper()
	s.server.Release()
	s.http.CloseIdleConnections()
	if err := s.server.Close(); err != nil {
		s.t.Fatal(err)
	}
	return open(s.t, settings)
}

func TestAStateSurvivesARestart(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	s := open(t, settings)
	done, running, fresh := s.paid("pm_card_visa"), s.confirmed(s.create(held("pm_sandbox_processing")).ID), s.create(keyed("pi:1"))
	r, err := s.refund(done.ID, 100)
	if err != nil {
		t.Fatal(err)
	}
	s.advance(time.Minute)
	now, events := s.server.Totals().Now, len(s.events(nil))
	s = s.reopen(settings)
	if i := s.intent(done.ID); i.Status != "succeeded" || i.AmountReceived != 500 || i.LatestCharge.AmountRefunded != 100 {
		t.Errorf("%+v", i)
	}
	if again, err := s.sc.V1Refunds.Retrieve(t.Context(), r.ID, nil); err != nil || again.Amount != 100 {
		t.Errorf("%v, %v", again, err)
	}
	if again := s.create(keyed("pi:1")); again.ID != fresh.ID {
		t.Error("the key is forgotten")
	}
	if got := s.server.Totals(); got.Now < now || got.Events != events {
		t.Errorf("%+v, at %d with %d events before", got, now, events)
	}
	s.advance(3 * time.Minute)
	if i := s.intent(running.ID); i.Status != "succeeded" {
		t.Errorf("what was running is %s", i.Status)
	}
}

func TestWebhooksThatWereNotTakenAreSentAfterARestart(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	s := open(t, settings)
	s.answer(500)
	s.create(held("pm_card_visa"))
	s.types(1)
	until(t, "the failed try is noted", func() bool { return s.server.Totals().Undelivered == 1 })
	s = s.reopen(settings)
	s.advance(2 * time.Hour)
	if got := s.types(1); got[0] != "payment_intent.created" {
		t.Errorf("%q", got)
	}
}

func TestATornLastLineIsForgottenAndAnotherBrokenOneIsAnError(t *testing.T) {
	dir := t.TempDir()
	settings := Settings{Dir: dir}
	s := open(t, settings)
	i := s.create(held("pm_card_visa"))
	s.server.Release()
	if err := s.server.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, journalFile)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data string) {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(whole) + `[{"k":"intent","i":"pi_torn","v":{"ID":"pi_to`)
	s = open(t, settings)
	if n, _ := s.counted(); s.intent(i.ID).Status != "requires_confirmation" || n != 1 {
		t.Errorf("%v, %d payments", s.intent(i.ID), n)
	}
	s.server.Release()
	if err := s.server.Close(); err != nil {
		t.Fatal(err)
	}
	write("[{\"k\":\"intent\",\n" + string(whole))
	if broken, err := New(Settings{Key: testKey, Dir: dir}); err == nil || !strings.Contains(err.Error(), "line 1") {
		_ = broken.Close()
		t.Errorf("%v", err)
	}
}

func TestAFolderHasOneSandbox(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	open(t, settings)
	if other, err := New(Settings{Key: testKey, Dir: settings.Dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		_ = other.Close()
		t.Errorf("%v", err)
	}
}

func TestALongJournalIsRewritten(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	s := open(t, settings)
	i := s.create(held("pm_card_visa"))
	s.types(1)
	until(t, "its webhook is noted", func() bool { return s.server.Totals().Delivered == 1 })
	if err := s.server.SetWebhook("", ""); err != nil {
		t.Fatal(err)
	}
	s.server.journal.disk.Lock()
	s.server.journal.mu.Lock()
	s.server.journal.size = leastLong + 5*s.server.journal.start + 1
	s.server.journal.mu.Unlock()
	s.server.journal.disk.Unlock()
	two := s.create(held("pm_card_visa"))
	if s.server.journal.long() {
		t.Error("it is still long")
	}
	data, err := os.ReadFile(filepath.Join(settings.Dir, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data[:s.server.journal.start]), `"k":"intent"`); n != 2 {
		t.Errorf("the new journal has %d records of two payments", n)
	}
	three := s.create(held("pm_card_visa"))
	s = s.reopen(settings)
	for _, id := range []string{i.ID, two.ID, three.ID} {
		s.intent(id)
	}
}

func TestWhatIsAnsweredIsOnDisk(t *testing.T) {
	settings := Settings{Dir: t.TempDir()}
	s := open(t, settings)
	i := s.create(keyed("pi:1"))
	data, err := os.ReadFile(filepath.Join(settings.Dir, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, `"k":"intent","i":"`+i.ID) && strings.Contains(line, `"k":"key","i":"pi:1"`) && strings.HasSuffix(line, "\n") {
			return
		}
	}
	t.Errorf("payment and answer are not in one line:\n%s", data)
}

func TestAFullSandboxTakesNoMorePayments(t *testing.T) {
	s := open(t, Settings{MaxBytes: 4000})
	i := s.create(held("pm_card_visa"))
	for n := 0; ; n++ {
		if _, err := s.sc.V1PaymentIntents.Create(t.Context(), held("pm_card_visa")); err != nil {
			break
		}
		if n == 100 {
			t.Fatal("it is never full")
		}
	}
	s.confirmed(i.ID) // there is room for what is under way
}

func TestWhatCannotBeWrittenIsNotAnswered(t *testing.T) {
	s := open(t, Settings{Dir: t.TempDir()})
	s.create(held("pm_card_visa"))
	broken := s.server.journal
	broken.disk.Lock()
	if err := broken.file.Close(); err != nil { // the disk fails
		t.Fatal(err)
	}
	broken.disk.Unlock()
	_, err := s.sc.V1PaymentIntents.Create(t.Context(), held("pm_card_visa"))
	problem(t, err, 500, "")
	s.broken = true
}
