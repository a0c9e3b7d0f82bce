package httpconn

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of proxies that are trusted to name their clients in X-Forwarded-For.
type Proxies []netip.Prefix

// maxHops bounds the addresses that are read of a request.
const maxHops = 32

// AddressOf returns the address of a client for limits and logs; for IPv6 the /64 network. If the peer is a trusted
// proxy, that is the rightmost address in the lines of X-Forwarded-For that is not trusted: what stands before it
// is the client's own claim. At an entry that is no address the search ends with the proxy that has sent it.
func (p Proxies) AddressOf(socket net.Conn, lines [][]byte) netip.Addr {
	remote, ok := socket.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address, hops := remote.AddrPort().Addr().Unmap(), 0
	for _, line := range slices.Backward(lines) {
		for more := true; more && p.Trust(address); {
			at := bytes.LastIndexByte(line, ',')
			hop := string(bytes.Trim(line[at+1:], " \t"))
			line, more = line[:max(at, 0)], at >= 0
			if hop == "" { // an empty element of a list (RFC 9110, section 5.6.1)
				continue
			}
			next, ok := parseHop(hop)
			if hops++; !ok || hops > maxHops {
				return network(address)
			}
			address = next
		}
	}
	return network(address)
}

// Trust reports whether the peer at an address is one of the proxies.
func (p Proxies) Trust(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(of netip.Prefix) bool { return of.Contains(address.WithZone("")) })
}

// parseHop parses an address, in brackets or with a port if its sender writes it so.
func parseHop(text string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(text)
		address = withPort.Addr()
	}
	return address.Unmap(), err == nil
}

// network returns the /64 network of an IPv6 address, which one customer gets, and other addresses as they are.
func network(address netip.Addr) netip.Addr {
	if address.Is6() {
		if network, err := address.WithZone("").Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return address
}
