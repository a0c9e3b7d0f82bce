package devstack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are chosen below those that the kernel uses for outgoing connections, so
// that no connection can take a port before its process listens on it.
const (
	firstPort = 20000
	ports     = 32768 - firstPort
)

// chosen has the ports that this process has chosen, so that none is chosen twice.
var chosen sync.Map

// freePort returns a loopback port that was free a moment ago.
func freePort() (int, error) {
	for range ports {
		port := firstPort + rand.IntN(ports) //nolint:gosec // a port is no secret
		if _, taken := chosen.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("devstack: no port is free")
}

// FreeAddress returns a loopback address whose port was free a moment ago.
func FreeAddress() (string, error) {
	port, err := freePort()
	return "127.0.0.1:" + strconv.Itoa(port), err
}
