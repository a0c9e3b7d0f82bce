package devstack

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// program writes a script that can be run.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	defer noForks()()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// noForks holds back the start of processes until done is called: one that is started
// while a program is written has the file open, and it cannot be run ("text file busy").
func noForks() (done func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}

// actors returns a fleet of scripts that log their settings, and note when they are told to end.
func actors(t *testing.T) (f *Fleet, notes string) {
	t.Helper()
	bin, logs := t.TempDir(), t.TempDir()
	notes = filepath.Join(t.TempDir(), "notes")
	for _, name := range fleetBinaries {
		program(t, bin, name, `trap "echo `+name+` >> '`+notes+`'; exit 0" TERM
env | grep -E 'TRIPRIZE_|^HOME=' | sort
echo up
while :; do sleep 0.02; done
`)
	}
	f = &Fleet{BinDir: bin, LogDir: logs, Env: []string{"TRIPRIZE_ALL=1", "TRIPRIZE_LANES=1"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	t.Cleanup(func() { _ = f.Stop() })
	return f, notes
}

// log awaits that a process is up and returns what it has logged since it was last started.
func (f *Fleet) log(t *testing.T, name string, runs int) (last string) {
	t.Helper()
	eventually(t, name+" is up", func() bool {
		data, _ := os.ReadFile(filepath.Join(f.LogDir, name+".log"))
		parts := strings.Split(string(data), "up\n")
		last = parts[max(0, len(parts)-2)]
		return len(parts) == runs+1
	})
	return last
}

func TestAFleetHasTheSettingsItWasGivenAndNoOthers(t *testing.T) {
	t.Setenv("TRIPRIZE_LEFT_OVER", "1")
	t.Setenv("HOME", "/home/of/tests")
	f, _ := actors(t)
	if _, err := f.StartAPI("127.0.0.1:4711"); err != nil {
		t.Fatal(err)
	}
	for _, env := range []string{"TRIPRIZE_LANES=2", "TRIPRIZE_LANES=3"} {
		if _, err := f.StartWorker(env); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.StartScheduler(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"api-1":       "TRIPRIZE_ALL=1\nTRIPRIZE_API_LISTEN=127.0.0.1:4711\nTRIPRIZE_LANES=1\n",
		"worker-1":    "TRIPRIZE_ALL=1\nTRIPRIZE_LANES=2\n",
		"worker-2":    "TRIPRIZE_ALL=1\nTRIPRIZE_LANES=3\n",
		"scheduler-1": "TRIPRIZE_ALL=1\nTRIPRIZE_LANES=1\n",
	} {
		if got := f.log(t, name, 1); got != "HOME=/home/of/tests\n"+want {
			t.Errorf("%s has\n%s", name, got)
		}
	}
	f.Workers[0].Kill()
	if err := f.Workers[0].Start(); err != nil {
		t.Fatal(err)
	}
	if got := f.log(t, "worker-1", 2); got != "HOME=/home/of/tests\nTRIPRIZE_ALL=1\nTRIPRIZE_LANES=2\n" {
		t.Errorf("started again it has\n%s", got)
	}
}

func TestAFleetStopsItsAPIsFirst(t *testing.T) {
	t.Parallel()
	f, notes := actors(t)
	for _, start := range []func() (*Child, error){
		func() (*Child, error) { return f.StartWorker() },
		func() (*Child, error) { return f.StartScheduler() },
		func() (*Child, error) { return f.StartAPI("127.0.0.1:4711") },
		func() (*Child, error) { return f.StartWorker() },
		func() (*Child, error) { return f.StartAPI("127.0.0.1:4712") },
	} {
		if _, err := start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"api-1", "api-2", "scheduler-1", "worker-1", "worker-2"} {
		f.log(t, name, 1)
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(notes)
	if err != nil || strings.Join(strings.Fields(string(data)), " ") != "api api scheduler worker worker" {
		t.Errorf("they ended in this order: %s, %v", data, err)
	}
}

func TestAFleetWithoutABinarySaysWhich(t *testing.T) {
	t.Parallel()
	f, _ := actors(t)
	if err := os.Remove(filepath.Join(f.BinDir, "worker")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartWorker(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "worker-1") {
		t.Errorf("got %v", err)
	}
}

func TestAwaitHTTPWaitsForA200(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	if err := AwaitHTTP(t.Context(), server.URL); err != nil || asked.Load() < 4 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
	asked.Store(-1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := AwaitHTTP(ctx, server.URL); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("got %v", err)
	}
}

func TestAFreeAddressCanBeListenedOn(t *testing.T) {
	t.Parallel()
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("%s is not on loopback", address)
	}
	if _, port, _ := net.SplitHostPort(address); port == "0" {
		t.Error("the port is not chosen")
	}
}

// occupied returns an address on which somebody answers every request with 200.
func occupied(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Whether nobody answers there or somebody else does.
func TestNobodyWaitsForAnAPIThatHasEnded(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	nobody, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"nobody": nobody, "somebody else": occupied(t)} {
		child := &Child{Name: "api-1", Logger: logger, Command: func() *exec.Cmd { return exec.Command("false") }}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := child.Exited()
		if name == "somebody else" {
			<-ended
		}
		if err := awaitAPI(t.Context(), child, ended, "http://"+address); !errors.Is(err, errEnded) {
			t.Errorf("%s answers: got %v", name, err)
		}
	}
	child := &Child{Name: "api-1", Logger: logger, Command: func() *exec.Cmd { return exec.Command("sleep", "1000") }}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)
	if err := awaitAPI(t.Context(), child, child.Exited(), "http://"+occupied(t)); err != nil {
		t.Errorf("it runs and answers: %v", err)
	}
	first := child.Exited()
	child.Kill()
	if err := awaitAPI(t.Context(), child, first, "http://"+occupied(t)); err != nil {
		t.Errorf("it was killed before it was seen ready, and is started again: %v", err)
	}
}

func TestTheEndOfALogIsShown(t *testing.T) {
	t.Parallel()
	f := &Fleet{LogDir: t.TempDir()}
	file := filepath.Join(f.LogDir, "api-1.log")
	if got := f.LogTail("api-1"); got != "" {
		t.Errorf("without a log: %q", got)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("before\n", 1000)+"the reason\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.LogTail("api-1"); !strings.HasSuffix(got, "before\nthe reason") || len(got) > 2000 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
