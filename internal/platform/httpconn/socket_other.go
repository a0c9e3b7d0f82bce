//go:build !linux

package httpconn

import (
	"net"
	"syscall"
)

// prepare does nothing: only Linux has the options. Elsewhere a lost client is detected later.
func prepare(string, string, syscall.RawConn) error { return nil }

// unread is unknown: bytes that the system has accepted count as read.
func unread(net.Conn) int { return 0 }
