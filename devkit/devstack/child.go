package devstack

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Child is a process that is kept running until it is stopped.
type Child struct {
	Name    string
	Command func() *exec.Cmd              // returns a new command for each start
	Restart time.Duration                 // pause before a child that ended is started again; 0: it is not
	Hold    func(down time.Duration) bool // asked after each pause: wait longer; nil: no
	Changed func()                        // called after every start and end
	Insist  bool                          // Stop repeats its signal each second: some servers take it only when they can
	Logger  *slog.Logger

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopping bool
	exited   chan struct{} // closed when the current process has ended
	killed   bool          // a signal ended the last process that ended
	stop     chan struct{} // closed by Stop
}

// Start starts the child and begins to watch it.
func (c *Child) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping, c.stop = false, make(chan struct{})
	return c.start()
}

// start starts a process. The caller holds mu.
func (c *Child) start() error {
	cmd := c.Command()
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// The thread that starts a child with a death signal must outlive it.
		defer lockThread()()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.ended(cmd, cmd.Wait(), exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("devstack: start %s: %w", c.Name, err)
	}
	c.cmd, c.exited = cmd, exited
	c.changed()
	return nil
}

// ended records the end of a process and, if it was not stopped, starts the next one.
func (c *Child) ended(cmd *exec.Cmd, err error, exited chan struct{}) {
	c.mu.Lock()
	stopping, stop := c.stopping, c.stop
	if c.cmd == cmd {
		c.cmd = nil
	}
	c.killed = !cmd.ProcessState.Exited()
	c.mu.Unlock()
	close(exited)
	c.changed()
	if stopping || c.Restart == 0 {
		return
	}
	c.Logger.Warn("a child process ended; it is started again", "child", c.Name, "in", c.Restart, "error", err)
	go c.again(stop)
}

func (c *Child) again(stop chan struct{}) {
	for ended := time.Now(); ; {
		select {
		case <-stop:
			return
		case <-time.After(c.Restart):
		}
		if c.Hold != nil && c.Hold(time.Since(ended)) {
			continue
		}
		c.mu.Lock()
		if c.stopping {
			c.mu.Unlock()
			return
		}
		err := c.start()
		c.mu.Unlock()
		if err == nil {
			return
		}
		c.Logger.Warn("a child process could not be started", "child", c.Name, "error", err)
	}
}

func (c *Child) changed() {
	if c.Changed != nil {
		go c.Changed()
	}
}

// PID returns the process id, or 0 while the child is not running.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// Exited returns a channel that is closed when the current process ends, or already
// closed when it has ended. Each process has a channel of its own.
func (c *Child) Exited() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exited
}

// Killed tells whether a signal ended the last process that ended; false means
// that it exited by itself.
func (c *Child) Killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Signal sends a signal to the child, if it is running.
func (c *Child) Signal(s os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return os.ErrProcessDone
	}
	return c.cmd.Process.Signal(s)
}

// Kill ends the child with SIGKILL and waits. Restart decides whether it is
// started again.
func (c *Child) Kill() {
	c.mu.Lock()
	cmd, exited := c.cmd, c.exited
	c.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-exited
	}
}

// Stop ends the child with signal s, or after grace with SIGKILL, and waits. It is
// not started again.
func (c *Child) Stop(s os.Signal, grace time.Duration) error {
	c.mu.Lock()
	if !c.stopping && c.stop != nil {
		c.stopping = true
		close(c.stop)
	}
	cmd, exited := c.cmd, c.exited
	c.mu.Unlock()
	if cmd == nil {
		return nil
	}
	for end := time.Now().Add(grace); time.Now().Before(end); {
		if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("devstack: stop %s: %w", c.Name, err)
		}
		_ = cmd.Process.Signal(syscall.SIGCONT) // a process stopped by SIGSTOP handles no other signal
		wait := time.Until(end)
		if c.Insist {
			wait = min(wait, signalAgain)
		}
		select {
		case <-exited:
			return nil
		case <-time.After(wait):
		}
	}
	_ = cmd.Process.Kill()
	<-exited
	return fmt.Errorf("devstack: %s did not stop within %s and was killed", c.Name, grace)
}
