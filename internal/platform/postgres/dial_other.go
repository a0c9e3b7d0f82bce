//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// setUserTimeout has nothing to set: TCP_USER_TIMEOUT is Linux's. Elsewhere the
// system decides how often a keep-alive may stay unanswered.
func setUserTimeout(time.Duration) func(network, address string, conn syscall.RawConn) error {
	return nil
}
