package postgres

import (
	"net"
	"time"
)

// Both ends of a connection ask after each other when it has been silent for a
// while. With the user timeout, which bounds how long what was sent may stay
// unacknowledged, each notices in time that the other has vanished: the client
// that waits for an answer as well as the server that holds locks for it.
const (
	keepaliveIdle     = 5 * time.Second
	keepaliveInterval = 2 * time.Second
)

// dialer returns a dialer for the client's end.
func dialer(userTimeout time.Duration) *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval},
		Control:         setUserTimeout(userTimeout),
	}
}
