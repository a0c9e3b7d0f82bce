//go:build ha

package ha

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

// dir is a folder in memory; tools/ha.sh mounts it, in namespaces that only this process and its children are in.
var dir = os.Getenv("TRIPRIZE_TEST_HA_DIR")

func TestMain(m *testing.M) {
	if dir == "" {
		fmt.Fprintln(os.Stderr, "these tests need namespaces of their own; run: make ha")
		os.Exit(1)
	}
	redisx.LogTo(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

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

// unplug takes a host off the network, and plug puts it back.
func unplug(t *testing.T, host string) { shell(t, `ip link set $1 down`, host) }
func plug(t *testing.T, host string)   { shell(t, `ip link set $1 up`, host) }

// cut drops all packets between a host and others, so that open connections stay half open.
func cut(t *testing.T, host string, others ...string) (mend func()) {
	t.Helper()
	for _, other := range others {
		shell(t, `ip netns exec $1 iptables -A INPUT -s $2 -j DROP; ip netns exec $1 iptables -A OUTPUT -d $2 -j DROP`, host, address(other))
	}
	return func() { shell(t, `ip netns exec $1 iptables -F`, host) }
}

// shell runs a script and returns what it prints.
func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", script, args, err, out)
	}
	return string(out)
}

// run starts a process on a host, which has its own /run. The log is bin/ha/log/NAME.log.
func run(t *testing.T, host, user, name string, env []string, args ...string) *devstack.Child {
	t.Helper()
	c := &devstack.Child{Name: name, Command: func() *exec.Cmd {
		const script = `mount -t tmpfs run /run; mkdir -m 777 /run/postgresql; user=$1; shift; exec setpriv --reuid=$user --regid=$user --clear-groups "$@"`
		cmd := exec.Command("ip", append([]string{"netns", "exec", host, "sh", "-euc", script, "sh", user}, args...)...)
		cmd.Env = append(append([]string{"LC_ALL=C.UTF-8"}, env...), "PATH="+os.Getenv("PATH"))
		if log, err := os.OpenFile(filepath.Join("../../bin/ha/log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = log, log
		}
		return cmd
	}}
	servers.NoError(t, c.Start())
	return c
}

// data makes a folder for the data of a server.
func data(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	servers.NoError(t, os.Mkdir(path, 0o700))
	return path
}

// answers tells whether a URL answers 200.
func answers(url string) bool {
	client := http.Client{Timeout: time.Second}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// each formats a text with %s for hosts, and joins the results with commas.
func each(format string, hosts ...string) string {
	all := make([]string, len(hosts))
	for i, host := range hosts {
		all[i] = strings.ReplaceAll(format, "%s", host)
	}
	return strings.Join(all, ",")
}
