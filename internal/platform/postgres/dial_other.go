//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// setUserTimeout does nothing: only Linux has TCP_USER_TIMEOUT.
func setUserTimeout(time.Duration) func(network, address string, conn syscall.RawConn) error {
	return nil
}
