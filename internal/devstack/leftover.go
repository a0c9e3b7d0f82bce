package devstack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopLeftover ends the process whose pid stands on the first line of file, if
// it still runs and its command line names what: pids are used again.
func stopLeftover(file, what string, s syscall.Signal) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil //nolint:nilerr // no pid file, no leftover
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || !runs(pid, what) {
		return os.Remove(file)
	}
	_ = syscall.Kill(pid, s)
	for deadline := time.Now().Add(15 * time.Second); runs(pid, what); {
		if time.Now().After(deadline) {
			return fmt.Errorf("devstack: process %d, left behind by an earlier run, does not stop", pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// runs tells whether a process runs whose command line contains what.
func runs(pid int, what string) bool {
	if pid <= 1 || syscall.Kill(pid, 0) != nil {
		return false
	}
	if line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err == nil {
		return strings.Contains(string(line), what)
	}
	line, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output() // systems without /proc
	return err == nil && strings.Contains(string(line), what)
}
