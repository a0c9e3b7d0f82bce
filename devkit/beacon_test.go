package devkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
)

func TestAFolderKeepsItsChainOfTestRounds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "beacon")
	made, err := keptChain(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := keptChain(dir)
	if err != nil || again.Hash() != made.Hash() || again.Sign(7).Randomness != made.Sign(7).Randomness {
		t.Error("the next run has another chain", err)
	}
	if other, err := keptChain(t.TempDir()); err != nil || other.Hash() == made.Hash() {
		t.Error("another folder has the same chain", err)
	}
	file := filepath.Join(dir, "chain.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the seed is in a file of mode %v, %v", info.Mode(), err)
	}
	for _, text := range []string{"", "{}", `{"seed": "xx"}`, `{"seed": "00"}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keptChain(dir); err == nil || !strings.Contains(err.Error(), "chain.json") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTheSettingsOfADevelopmentSystemHaveItsRelaysOrNone(t *testing.T) {
	t.Parallel()
	const servers = "postgres: {url: 'postgres://nowhere'}\nredis: {url: 'redis://nowhere'}\n"
	load := func(e *environment) config.Beacon {
		t.Helper()
		file := filepath.Join(t.TempDir(), "triprize.yaml")
		if err := os.WriteFile(file, []byte(servers+e.beaconSettings()), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := config.LoadFrom(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		return settings.Beacon
	}
	e := &environment{dir: t.TempDir(), fleet: &devstack.Fleet{}}
	if b := load(e); b.Enabled() || b.Default || e.aboutBeacon() != nil || e.introduceBeacon() != "" {
		t.Errorf("without --beacon: %+v", b)
	}
	if err := e.startBeacon(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.beacon.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := load(e)
	chain, err := b.Chain()
	if err != nil || chain.Hash() != e.beacon.Chain().Hash() || b.Default || len(b.URLs()) != relays {
		t.Errorf("with --beacon: %+v, %v", b, err)
	}
	for _, url := range b.URLs() {
		if !strings.Contains(e.introduceBeacon(), url) {
			t.Errorf("it is not said that a relay is at %s", url)
		}
	}
}
