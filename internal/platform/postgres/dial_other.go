//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// setUserTimeout sets nothing: only Linux has TCP_USER_TIMEOUT. Elsewhere the
// system decides how many keep-alive probes may stay unanswered.
func setUserTimeout(time.Duration) func(network, address string, conn syscall.RawConn) error {
	return nil
}
