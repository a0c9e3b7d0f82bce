package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopLeftovers ends the servers that an earlier run left behind in a folder.
func stopLeftovers(dir string, postgres, redis syscall.Signal) error {
	folders, err := os.ReadDir(dir)
	for _, folder := range folders {
		home := filepath.Join(dir, folder.Name())
		err = errors.Join(err, stopLeftover(filepath.Join(home, "postmaster.pid"), home, postgres), stopLeftover(filepath.Join(home, "redis.pid"), home, redis))
	}
	return err
}

// stopLeftover ends the process whose pid is on the first line of file, and
// removes the file.
func stopLeftover(file, what string, s syscall.Signal) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil //nolint:nilerr // no pid file, no leftover
	}
	first, _, _ := strings.Cut(string(data), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(first)); err == nil {
		if err := stopProcess(pid, what, s, signalAgain); err != nil {
			return err
		}
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// StopProcess ends a process that an earlier run left behind, if it still runs.
// Its command line must contain what: another process may have the pid by now.
func StopProcess(pid int, what string, s syscall.Signal) error {
	return stopProcess(pid, what, s, stopTimeout)
}

func stopProcess(pid int, what string, s syscall.Signal, again time.Duration) error {
	deadline := time.Now().Add(stopTimeout)
	for signalled := (time.Time{}); runs(pid, what); time.Sleep(20 * time.Millisecond) {
		if now := time.Now(); now.After(deadline) {
			return fmt.Errorf("devstack: process %d (%s), left behind by an earlier run, does not stop", pid, what)
		} else if now.Sub(signalled) > again {
			_ = syscall.Kill(pid, s)
			signalled = now
		}
	}
	return nil
}

// runs tells whether process pid runs and its command line contains what.
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
