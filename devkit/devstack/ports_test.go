package devstack

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// A process that is just being started has all open sockets until it runs its program.
func TestAPortIsFreeWhileProcessesAreStarted(t *testing.T) {
	t.Parallel()
	_ = exec.Command("/bin/true").Run() // before the first one, package os starts one as a trial, outside of the lock
	done := make(chan struct{})
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	for range 200 {
		address, err := FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			break
		}
		_ = listener.Close()
	}
	close(done)
	starters.Wait()
}
