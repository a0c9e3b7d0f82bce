package devstack

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAPIDFileEndsOnlyTheProcessItMeans(t *testing.T) {
	t.Parallel()
	c := &Child{Name: "child", Command: func() *exec.Cmd { return exec.Command("sleep", "1000") }, Logger: slog.New(slog.DiscardHandler)}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(syscall.SIGKILL, patience) })
	pid := c.PID()
	file := filepath.Join(t.TempDir(), "child.pid")
	follow := func(content, what string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := stopLeftover(file, what, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("the file with %q is still there", content)
		}
	}
	follow(fmt.Sprintf("%d\n", pid), "redis-server") // the id was used again, by somebody else
	follow("soon\n", "sleep")
	follow("", "sleep")
	if !exists(pid) {
		t.Fatal("a process that was not meant is gone")
	}
	follow(fmt.Sprintf(" %d \n/some/folder\n5432\n", pid), "sleep")
	if exists(pid) {
		t.Error("the leftover is still there")
	}
	follow(fmt.Sprintf("%d\n", pid), "sleep") // which is gone
	if err := stopLeftover(file, "sleep", syscall.SIGTERM); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

func TestProcessesThatAreNoLeftoversAreNeverMeant(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{1, 0, -1, -os.Getpid()} { // init, and groups of processes
		if runs(pid, "") {
			t.Errorf("%d would be sent a signal", pid)
		}
	}
	if !runs(os.Getpid(), "devstack") {
		t.Error("it does not know us")
	}
}
