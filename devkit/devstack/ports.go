package devstack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Ports are chosen below those that the kernel uses for outgoing connections, so
// that no connection can take a port before its process listens on it. Each process has
// blocks of them for itself: it listens on the first port of a block as long as it lives.
const (
	firstPort = 20000
	blockSize = 64
	blocks    = (32768 - firstPort) / blockSize
)

// block has the ports of this process that are not chosen yet.
var block struct {
	sync.Mutex
	next, end int
	owned     []net.Listener
}

// freePort returns a loopback port that nobody listens on, and that is chosen once on this machine.
func freePort() (int, error) {
	block.Lock()
	defer block.Unlock()
	for range blocks * blockSize {
		if block.next == block.end && !takeBlock() {
			break
		}
		port := block.next
		block.next++
		if isFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("devstack: no port is free")
}

// isFree tells whether nobody listens on a port. No process is started meanwhile: until it runs its
// program it has all open sockets, and the port would not be free when this one is closed.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := listen(port)
	return err == nil && listener.Close() == nil
}

// takeBlock takes a block that no other process has.
func takeBlock() bool {
	start := rand.IntN(blocks) //nolint:gosec // a port is no secret
	for i := range blocks {
		first := firstPort + (start+i)%blocks*blockSize
		if owned, err := listen(first); err == nil {
			block.owned = append(block.owned, owned)
			block.next, block.end = first+1, first+blockSize
			return true
		}
	}
	return false
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
}

// FreeAddress returns a loopback address whose port is free.
func FreeAddress() (string, error) {
	port, err := freePort()
	return "127.0.0.1:" + strconv.Itoa(port), err
}
