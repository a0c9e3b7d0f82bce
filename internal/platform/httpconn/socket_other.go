//go:build !linux

package httpconn

import (
	"net"
	"syscall"
)

// prepare sets nothing: the options are those of Linux. Elsewhere a client whose
// machine is gone is noticed later.
func prepare(string, string, syscall.RawConn) error { return nil }

// unread is not known: bytes that the system has taken count as read.
func unread(net.Conn) int { return 0 }
