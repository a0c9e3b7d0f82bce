package httpconn

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepare sets the options of a listening socket; its connections inherit them.
func prepare(_, _ string, socket syscall.RawConn) (failed error) {
	err := socket.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerTimeout.Milliseconds()))
		if failed == nil { // the kernel doubles it for its bookkeeping
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// unread returns how many written bytes the client's system has not acknowledged.
func unread(socket net.Conn) (n int) {
	raw, ok := socket.(syscall.Conn)
	if !ok {
		return 0
	}
	if connection, err := raw.SyscallConn(); err == nil {
		_ = connection.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) // closed: 0
	}
	return n
}
