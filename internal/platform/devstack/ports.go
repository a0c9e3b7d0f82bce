package devstack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are chosen below those that the kernel gives to outgoing connections, so
// that none of these can take one before its process listens.
const (
	firstPort = 20000
	ports     = 32768 - firstPort
)

// given has the ports that this process has chosen: none is chosen twice.
var given sync.Map

// freePort returns a loopback port that was free a moment ago.
func freePort() (int, error) {
	for range ports {
		port := firstPort + rand.IntN(ports) //nolint:gosec // nobody must not guess it
		if _, taken := given.LoadOrStore(port, true); taken {
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
