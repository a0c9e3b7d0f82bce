package httpconn

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestTheAddressOfACallerBehindProxiesIsTheLastThatNoneOfThemHas(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::5/128"), netip.MustParsePrefix("fe80::/64")}
	for name, row := range map[string]struct{ peer, want, lines string }{
		"empty lines":                    {"10.0.0.1", "10.0.0.1", "\n , "},
		"claims of the caller":           {"10.0.0.1", "203.0.113.7", "<script>, 198.51.100.1, 203.0.113.7"},
		"two proxies":                    {"10.0.0.1", "203.0.113.7", "198.51.100.1,203.0.113.7 ,\t10.0.0.2"},
		"two proxies, each with a line":  {"10.0.0.1", "203.0.113.7", "198.51.100.1\n203.0.113.7\n10.0.0.2"},
		"an untrusted peer, and a proxy": {"203.0.113.9", "203.0.113.9", "198.51.100.1, 10.0.0.2"},
		"proxies only":                   {"10.0.0.1", "10.0.0.3", "10.0.0.3, 10.0.0.2"},
		"empty elements":                 {"10.0.0.1", "203.0.113.7", "198.51.100.1, 203.0.113.7, " + strings.Repeat(",", maxHops)},
		"no address before a proxy":      {"10.0.0.1", "10.0.0.2", "203.0.113.7, ::g, 10.0.0.2"},
		"with a port":                    {"10.0.0.1", "203.0.113.7", "203.0.113.7:4711"},
		"IPv6 is its network":            {"10.0.0.1", "2001:db8:1:2::", "2001:db8:1:2:3:4:5:6"},
		"IPv6 in brackets":               {"10.0.0.1", "2001:db8:1:2::", "[2001:db8:1:2:3::1]"},
		"IPv6 with a port":               {"10.0.0.1", "2001:db8:1:2::", "[2001:db8:1:2:3::1]:443"},
		"IPv4 as IPv6":                   {"10.0.0.1", "203.0.113.7", "::ffff:203.0.113.7, ::ffff:10.0.0.2"},
		"a peer with IPv4 as IPv6":       {"::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"},
		"a peer with IPv6":               {"fd00::5", "203.0.113.7", "203.0.113.7"},
		"another of the peer's network":  {"fd00::6", "fd00::", "203.0.113.7"},
		"a peer of this link":            {"fe80::1%eth0", "203.0.113.7", "203.0.113.7, fe80::2%eth0"},
		"as many proxies as are read":    {"10.0.0.1", "203.0.113.7", "203.0.113.7\n" + strings.Repeat("10.0.0.9,", maxHops-1)},
		"more proxies than are read":     {"10.0.0.1", "10.0.0.9", "203.0.113.7\n10.0.0.9\n" + strings.Repeat("10.0.0.9,", maxHops-1)},
	} {
		peer, lines := netip.MustParseAddr(row.peer), bytes.Split([]byte(row.lines), []byte("\n"))
		if got := proxies.AddressOf(remote{ip: peer.AsSlice(), zone: peer.Zone()}, lines).String(); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
	if got := proxies.AddressOf(&net.UnixConn{}, nil); got.IsValid() {
		t.Errorf("a socket of this machine has the address %s", got)
	}
}
