//go:build ha

package ha

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// dir is a folder in memory; tools/ha.sh mounts it, in namespaces that only this process and its children are in.
var dir = os.Getenv("TRIPRIZE_TEST_HA_DIR")

// hosts are the names of the network namespaces; each has one address.
var hosts = []string{"proxy", "api1", "api2", "worker1", "worker2", "scheduler", "pg1", "pg2", "witness", "redis1", "redis2", "redis3"}

func address(host string) string { return fmt.Sprint("10.47.0.", 11+slices.Index(hosts, host)) }

// makeHosts connects all hosts, and this process, by a switch.
func makeHosts(t *testing.T) {
	t.Helper()
	shell(t, `ip link set lo up; ip link add br0 type bridge; ip address add 10.47.0.1/24 dev br0; ip link set br0 up`)
	for _, host := range hosts {
		shell(t, `ip netns add $1
			ip link add $1 type veth peer name eth0 netns $1
			ip link set $1 master br0 up
			ip -n $1 address add $2/24 dev eth0
			ip -n $1 link set eth0 up
			ip -n $1 link set lo up
			echo $2 $1 >>/etc/hosts`, host, address(host))
	}
}

// shell runs a script and returns what it prints.
func shell(t *testing.T, script string, args ...string) {
	t.Helper()
	if out, err := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", script, args, err, out)
	}
}

// run starts a process on a host, with /run and a working directory, dir/name, of its own. Its log is
// bin/ha/log/name.log.
func run(t *testing.T, host, user, name string, env []string, args ...string) *devstack.Child {
	t.Helper()
	shell(t, `mkdir -m 700 $2; chown $1 $2`, user, filepath.Join(dir, name))
	c := &devstack.Child{Name: name, Command: func() *exec.Cmd {
		const script = `mount -t tmpfs run /run; mkdir -m 777 /run/postgresql; user=$1; shift; exec setpriv --reuid=$user --regid=$user --clear-groups "$@"`
		cmd := exec.Command("ip", append([]string{"netns", "exec", host, "sh", "-euc", script, "sh", user}, args...)...)
		cmd.Env, cmd.Dir = append(env, "LC_ALL=C.UTF-8", "PATH="+os.Getenv("PATH")), filepath.Join(dir, name)
		if log, err := os.OpenFile("../../bin/ha/log/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = log, log
		}
		return cmd
	}}
	servers.NoError(t, c.Start())
	return c
}

// answers tells whether a URL answers 200.
func answers(t *testing.T, url string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	servers.NoError(t, err)
	return fleet.Send(request).Status == http.StatusOK
}

// output returns what a command prints; empty: it cannot be run.
func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return string(out)
}
