//go:build web

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// startNode runs a program with Node.js, which says each line of its output to hear. It returns when the program has said
// that it is ready; kill ends it at once, as does the end of the test.
func startNode(t *testing.T, program string, env []string, ready string, hear func(line string)) (kill func()) {
	t.Helper()
	node := exec.Command("node", program)
	node.Env = append(append(os.Environ(), env...), fleet.NodeEnv(t)...)
	var errs servers.Journal
	node.Stderr = &errs
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if hear(lines.Text()); strings.Contains(lines.Text(), ready) {
				close(begun)
			}
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = node.Process.Kill()
		<-ended
		_ = node.Wait()
		if t.Failed() {
			t.Logf("%s says\n%s", program, fleet.Tail([]byte(errs.String()), 4000))
		}
	})
	t.Cleanup(kill)
	select {
	case <-begun:
	case <-ended:
		t.Fatalf("%s has ended: %s", program, errs.String())
	}
	return kill
}
