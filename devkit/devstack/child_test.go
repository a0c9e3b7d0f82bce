package devstack

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// raise starts a child that is stopped at the end of the test, at the latest.
func raise(t *testing.T, c *Child) *Child {
	t.Helper()
	c.Name, c.Logger = "child", slog.New(slog.NewTextHandler(t.Output(), nil))
	t.Cleanup(func() { _ = c.Stop(syscall.SIGKILL, patience) })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func sleeper() *exec.Cmd { return exec.Command("sleep", "1000") }

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// These tests run on the clock of package synctest, on which no time passes while a
// child runs: only a child that is dead lets a pause go by.

func TestAChildThatDiesIsStartedAgainAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 300 * time.Millisecond
		starts := make(chan time.Time, 10)
		changes := make(chan struct{}, 10)
		c := raise(t, &Child{Restart: pause, Changed: func() { changes <- struct{}{} }, Command: func() *exec.Cmd {
			starts <- time.Now()
			return sleeper()
		}})
		last := <-starts
		<-changes
		for range 2 {
			before := c.PID()
			kill(t, before)
			at := <-starts
			if paused := at.Sub(last); paused != pause {
				t.Errorf("it was started again after %s", paused)
			}
			last = at
			<-changes // the end is announced
			<-changes // and the start
			if pid := c.PID(); pid == before || !exists(pid) {
				t.Errorf("it does not run: %d, before %d", pid, before)
			}
		}
	})
}

func TestAChildThatIsStoppedIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(c *Child) error{
		"by us": func(c *Child) error { return c.Stop(syscall.SIGTERM, patience) },
		"after it died": func(c *Child) error {
			c.Kill()
			return c.Stop(syscall.SIGTERM, patience)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const pause = 50 * time.Millisecond
				var starts atomic.Int32
				c := raise(t, &Child{Restart: pause, Command: func() *exec.Cmd {
					starts.Add(1)
					return sleeper()
				}})
				pid := c.PID()
				if err := stop(c); err != nil {
					t.Fatal(err)
				}
				if exists(pid) || c.PID() != 0 {
					t.Errorf("it runs: %d, then %d", pid, c.PID())
				}
				time.Sleep(6 * pause)
				if starts.Load() != 1 || c.PID() != 0 {
					t.Errorf("it was started again: %d", c.PID())
				}
				if err := c.Start(); err != nil || c.PID() == 0 || starts.Load() != 2 {
					t.Errorf("by hand: %v, %d", err, c.PID())
				}
			})
		})
	}
}

func TestAChildWithoutAPauseStaysDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		changes := make(chan struct{}, 10)
		c := raise(t, &Child{Changed: func() { changes <- struct{}{} }, Command: func() *exec.Cmd {
			starts.Add(1)
			return sleeper()
		}})
		<-changes // the start is announced
		pid := c.PID()
		c.Kill()
		if exists(pid) || c.PID() != 0 {
			t.Errorf("it runs: %d, then %d", pid, c.PID())
		}
		<-changes // and the end
		time.Sleep(time.Hour)
		if starts.Load() != 1 {
			t.Error("it was started again")
		}
		if err := c.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("a signal to a process that has ended: %v", err)
		}
		if err := c.Stop(syscall.SIGTERM, patience); err != nil {
			t.Errorf("a stop of a process that has ended: %v", err)
		}
	})
}

func TestAChildThatIsStartedByHandInThePauseRunsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 100 * time.Millisecond
		starts := make(chan struct{}, 10)
		c := raise(t, &Child{Restart: pause, Command: func() *exec.Cmd {
			starts <- struct{}{}
			return sleeper()
		}})
		<-starts
		c.Kill()
		if err := c.Stop(syscall.SIGTERM, patience); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-starts
		kill(t, c.PID())
		<-starts // after the pause, in which a start that was still due would come too
		if err := c.Stop(syscall.SIGKILL, patience); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * pause)
		if n := len(starts); n != 0 {
			t.Errorf("it was started %d times more", n)
		}
	})
}

// trapper starts a child that does trap on SIGTERM, and returns when it is ready for it.
func trapper(t *testing.T, trap string) *Child {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), out.Close() }()
	c := raise(t, &Child{Restart: time.Millisecond, Command: func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", "trap '"+trap+"' TERM; echo ready; while :; do sleep 0.02; done")
		cmd.Stdout = in
		return cmd
	}})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return c
}

func TestAChildThatDoesNotHearIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	const grace = 100 * time.Millisecond
	c := trapper(t, "")
	pid := c.PID()
	if err := c.Stop(syscall.SIGTERM, grace); err == nil || !strings.Contains(err.Error(), "child did not stop within 100ms") {
		t.Errorf("got %v", err)
	}
	if exists(pid) {
		t.Error("it is still there")
	}
}

func TestAChildThatIsFrozenHearsTheStop(t *testing.T) {
	t.Parallel()
	c := trapper(t, "exit 0")
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(syscall.SIGTERM, patience); err != nil {
		t.Error(err)
	}
}

func TestAChildThatCannotBeStartedIsTriedUntilItCan(t *testing.T) {
	t.Parallel()
	var starts atomic.Int32
	command := func() *exec.Cmd {
		if n := starts.Add(1); n == 2 || n == 3 {
			return exec.Command("/nowhere/program")
		}
		return sleeper()
	}
	c := raise(t, &Child{Restart: time.Millisecond, Command: command})
	kill(t, c.PID())
	eventually(t, "it runs", func() bool { return starts.Load() == 4 && c.PID() != 0 })

	never := &Child{Name: "nobody", Restart: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Command: func() *exec.Cmd { return exec.Command("/nowhere/program") }}
	if err := never.Start(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "start nobody") {
		t.Errorf("the first time it is an error, not %v", err)
	}
}
