package postgres

import (
	"net"
	"time"
)

// Both ends of a connection send keep-alive probes when it has been idle for a
// while. The user timeout bounds how long sent data may stay unacknowledged.
// Together they let each end notice in time that the other is gone: the client,
// which waits for an answer, and the server, which holds locks for the client.
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
