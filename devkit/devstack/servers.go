package devstack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds the start of one server, and stopTimeout the end of one process, on a machine that has much
// else to do. Whoever ends dev waits as long for a process that is frozen.
const startTimeout, stopTimeout = 5 * time.Minute, 2 * time.Minute

// signalAgain is when a server is asked to stop once more: Redis refuses while it writes its first append-only file.
const signalAgain = time.Second

// daemon is a private server on a loopback port.
type daemon struct {
	*Child
	port            int
	pw              string
	log             string // where its log is
	shutdown, crash syscall.Signal
	grace           time.Duration                   // of its shutdown
	try             func(ctx context.Context) error // fails until the server answers
}

// begin starts the server and waits until it answers.
func (s *daemon) begin(ctx context.Context) error {
	if err := s.Start(); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		_ = s.Stop()
		return fmt.Errorf("%w; its log is %s", err, s.log)
	}
	return nil
}

func (s *daemon) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

func (s *daemon) awaitReady(ctx context.Context) error {
	return awaitReady(ctx, s.Name, s.Exited(), s.try)
}

// Stop shuts the server down: clients are disconnected, no data is lost.
func (s *daemon) Stop() error { return s.Child.Stop(s.shutdown, s.grace) }

// RestartAfter stops the server as a crash would, waits for down, and starts it again on
// the same port, with the data that it had on disk.
func (s *daemon) RestartAfter(ctx context.Context, down time.Duration) error {
	if err := s.Child.Stop(s.crash, s.grace); err != nil {
		return err
	}
	time.Sleep(down)
	if err := s.Start(); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

// password returns the password in file, and creates it the first time.
func password(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	pw := hex.EncodeToString(random)
	return pw, os.WriteFile(file, []byte(pw+"\n"), 0o600)
}

// awaitReady tries until the server answers, or until ended is closed because its
// process has ended; nil: the process is not watched.
func awaitReady(ctx context.Context, name string, ended <-chan struct{}, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 10*time.Second) // /readyz itself may take two
		err := try(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("devstack: %s does not answer: %w", name, err)
		case <-ended:
			return fmt.Errorf("devstack: %s ended instead of getting ready: %w", name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
