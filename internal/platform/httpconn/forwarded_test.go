package httpconn

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestTheAddressOfACallerBehindProxiesIsTheLastThatNoneOfThemHas(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::5/128"), netip.MustParsePrefix("fe80::/64")}
	chain := strings.Repeat("10.0.0.9,", maxHops)
	for name, row := range map[string]struct {
		peer, want string
		lines      []string
	}{
		"no header":                       {"10.0.0.1", "10.0.0.1", nil},
		"an empty header":                 {"10.0.0.1", "10.0.0.1", []string{"", " , "}},
		"one proxy":                       {"10.0.0.1", "203.0.113.7", []string{"203.0.113.7"}},
		"the caller has sent one too":     {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1, 203.0.113.7"}},
		"in a line of its own":            {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1", "203.0.113.7"}},
		"it claims to be a proxy":         {"10.0.0.1", "203.0.113.7", []string{"10.0.0.2, 203.0.113.7"}},
		"two proxies":                     {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1,203.0.113.7 ,\t10.0.0.2"}},
		"two proxies, two lines":          {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1", "203.0.113.7", "10.0.0.2"}},
		"an untrusted peer":               {"203.0.113.9", "203.0.113.9", []string{"198.51.100.1"}},
		"an untrusted peer, and a proxy":  {"203.0.113.9", "203.0.113.9", []string{"198.51.100.1, 10.0.0.2"}},
		"proxies only":                    {"10.0.0.1", "10.0.0.3", []string{"10.0.0.3, 10.0.0.2"}},
		"empty elements":                  {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1, 203.0.113.7, ,"}},
		"no address":                      {"10.0.0.1", "10.0.0.1", []string{"203.0.113.7, unknown"}},
		"no address before a proxy":       {"10.0.0.1", "10.0.0.2", []string{"203.0.113.7, ::g, 10.0.0.2"}},
		"no address before the caller":    {"10.0.0.1", "203.0.113.7", []string{"<script>, 203.0.113.7"}},
		"a quoted one":                    {"10.0.0.1", "10.0.0.1", []string{`"203.0.113.7"`}},
		"with a port":                     {"10.0.0.1", "203.0.113.7", []string{"198.51.100.1:80, 203.0.113.7:4711"}},
		"a wrong port":                    {"10.0.0.1", "10.0.0.1", []string{"203.0.113.7:99999"}},
		"IPv6 is its network":             {"10.0.0.1", "2001:db8:1:2::", []string{"2001:db8:1:2:3:4:5:6"}},
		"IPv6 in brackets":                {"10.0.0.1", "2001:db8:1:2::", []string{"[2001:db8:1:2:3::1]"}},
		"IPv6 with a port":                {"10.0.0.1", "2001:db8:1:2::", []string{"[2001:db8:1:2:3::1]:443"}},
		"IPv4 as IPv6":                    {"10.0.0.1", "203.0.113.7", []string{"::ffff:203.0.113.7, ::ffff:10.0.0.2"}},
		"a peer with IPv4 as IPv6":        {"::ffff:10.0.0.1", "203.0.113.7", []string{"203.0.113.7"}},
		"a peer with IPv6":                {"fd00::5", "203.0.113.7", []string{"203.0.113.7"}},
		"another of the peer's network":   {"fd00::6", "fd00::", []string{"203.0.113.7"}},
		"a peer of this link":             {"fe80::1%eth0", "203.0.113.7", []string{"203.0.113.7, fe80::2%eth0"}},
		"as many proxies as are read":     {"10.0.0.1", "203.0.113.7", []string{"203.0.113.7," + strings.Repeat("10.0.0.9,", maxHops-1)}},
		"more proxies than are read":      {"10.0.0.1", "10.0.0.9", []string{"203.0.113.7," + chain}},
		"more in lines than are read":     {"10.0.0.1", "10.0.0.9", append([]string{"203.0.113.7"}, strings.Split(chain, ",")...)},
		"a flood of what no proxy sends":  {"10.0.0.1", "203.0.113.7", []string{strings.Repeat("198.51.100.1,", 1000) + "203.0.113.7"}},
		"a flood of commas":               {"10.0.0.1", "203.0.113.7", []string{"203.0.113.7" + strings.Repeat(",", 10_000)}},
		"an address longer than any":      {"10.0.0.1", "10.0.0.1", []string{strings.Repeat("1", 10_000)}},
		"a network instead of an address": {"10.0.0.1", "10.0.0.1", []string{"203.0.113.0/24"}},
	} {
		t.Run(name, func(t *testing.T) {
			peer := netip.MustParseAddr(row.peer)
			lines := make([][]byte, len(row.lines))
			for i, line := range row.lines {
				lines[i] = []byte(line)
			}
			if got := proxies.AddressOf(remote{ip: peer.AsSlice(), zone: peer.Zone()}, lines).String(); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if got, peers := Proxies(nil).AddressOf(remote{ip: peer.AsSlice()}, lines), network(peer.Unmap()); got != peers {
				t.Errorf("without proxies %s, want the peer %s", got, peers)
			}
		})
	}
	if got := proxies.AddressOf(&net.UnixConn{}, nil); got.IsValid() {
		t.Errorf("a socket of this machine has the address %s", got)
	}
}
