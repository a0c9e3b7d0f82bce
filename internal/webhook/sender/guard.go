package sender

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// maxURLLength bounds the URL of an endpoint, in bytes.
const maxURLLength = 2000

// errAddress means that a connection was refused here, because of the address that the name
// leads to.
var errAddress = errors.New("the address is not public, and webhooks.allow_networks does not allow it")

// Guard says where requests may go. The zero value refuses everything.
type Guard struct {
	networks []netip.Prefix // that are allowed, although they are not public
	public   *ssrf.Guardian
}

// NewGuard returns a Guard that allows public addresses, and those of networks: CIDRs,
// separated by commas. Empty: none.
func NewGuard(networks string) (Guard, error) {
	var g Guard
	for text := range strings.SplitSeq(networks, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return Guard{}, fmt.Errorf("sender.NewGuard: %q is no network like 10.0.0.0/8 or fd00::/8", text)
		}
		g.networks = append(g.networks, prefix)
	}
	g.public = ssrf.New(ssrf.WithAnyPort())
	return g, nil
}

// cloudHosts are where clouds answer their machines, and give them credentials: whatever the setting says, no receiver
// is there. Most are link-local; 168.63.129.16 is not even in a network that is not public.
var cloudHosts = prefixes("169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
	"fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128", "fd00:100::100:200/128", "fd00:a9fe:a9fe::1/128")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func anyContains(networks []netip.Prefix, at netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(at) })
}

// allows reports whether a request may go to an address; plain: without TLS.
func (g Guard) allows(at netip.Addr, plain bool) bool {
	if !at.IsValid() || at.Zone() != "" || g.public == nil || anyContains(cloudHosts, at) {
		return false
	}
	inside, instead := g.embedded(at)
	if slices.ContainsFunc(inside, func(v4 netip.Addr) bool { return !g.allows(v4, plain && instead) }) {
		return false
	}
	return instead || g.names(at) || !plain && g.public.SafeAddr(at) == nil
}

// names reports whether an address is in a network of the setting.
func (g Guard) names(at netip.Addr) bool {
	if inside, instead := g.embedded(at); instead {
		return !slices.ContainsFunc(inside, func(v4 netip.Addr) bool { return !g.names(v4) })
	}
	return anyContains(g.networks, at)
}

var (
	translated = prefixes("::ffff:0:0/96", "64:ff9b::/96")        // by the system, and by a NAT64
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")          // RFC 8215
	tunnelled  = prefixes("::/96", "::ffff:0:0:0/96")             // IPv4-compatible, IPv4-translated: in the last bytes
	sixToFour  = netip.MustParsePrefix("2002::/16")               // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")               // RFC 4380
	isatap     = [][]byte{{0, 0, 0x5e, 0xfe}, {2, 0, 0x5e, 0xfe}} // RFC 5214: after any 64 bits
)

// embedded returns the IPv4 addresses in an IPv6 address, to which a translator or a tunnel may send. All of them must be
// allowed; with instead, they are judged in place of the address. The prefix of a local NAT64 is as the setting has it.
func (g Guard) embedded(at netip.Addr) (inside []netip.Addr, instead bool) {
	if !at.Is6() || at == netip.IPv6Loopback() || at == netip.IPv6Unspecified() {
		return nil, false
	}
	b := at.As16()
	from := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case anyContains(translated, at):
		return []netip.Addr{from(12)}, true
	case localNAT64.Contains(at):
		for _, p := range g.networks {
			if p.Contains(at) {
				inside = append(inside, behind(b, p.Bits()))
			}
		}
		return inside, inside != nil
	case sixToFour.Contains(at):
		return []netip.Addr{from(2)}, false
	case teredo.Contains(at):
		return []netip.Addr{from(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}, false
	case anyContains(tunnelled, at), slices.ContainsFunc(isatap, func(mark []byte) bool { return bytes.Equal(b[8:12], mark) }):
		return []netip.Addr{from(12)}, false
	}
	return nil, false
}

// behind decodes an address of a NAT64 with a prefix of so many bits (RFC 6052, section 2.2): byte 8 is left out, and what
// follows the four bytes is 0. Anything else is no address, which is refused.
func behind(b [16]byte, bits int) netip.Addr {
	if bits != 48 && bits != 56 && bits != 64 {
		bits = 96
	}
	rest := b[bits/8:]
	if at := 8 - bits/8; at >= 0 {
		rest = slices.Concat(rest[:at], rest[at+1:])
	}
	if slices.ContainsFunc(rest[4:], func(x byte) bool { return x != 0 }) {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(rest[:4]))
}

// control is the check at the moment of a connection, for net.Dialer.
func (g Guard) control(plain bool) func(network, address string, _ syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !strings.HasPrefix(network, "tcp") || !g.allows(to.Addr(), plain) || !portAllowed(to.Port()) {
			return &net.AddrError{Err: errAddress.Error(), Addr: address}
		}
		return nil
	}
}

// portAllowed refuses the ports of other services, such as mail.
func portAllowed(port uint16) bool { return port == 80 || port == 443 || port >= 1024 }

// CheckURL says what is wrong with the URL of an endpoint, in words for its sender; nil:
// nothing. The address behind its name is only known when a request is sent.
func (g Guard) CheckURL(text string) error {
	if len(text) > maxURLLength {
		return fmt.Errorf("is longer than %d bytes", maxURLLength)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("must begin with https://")
	case u.Scheme == "http" && len(g.networks) == 0:
		return errors.New("must begin with https://; http is for the networks of the setting webhooks.allow_networks, and there are none")
	case u.User != nil:
		return errors.New("must not contain a user or a password: messages are signed")
	case u.Fragment != "" || u.Opaque != "" || u.Hostname() == "":
		return errors.New("must be like https://shop.example/webhooks, without a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || !portAllowed(uint16(n)) {
			return errors.New("has a port that is not 80, 443, or 1024 to 65535")
		}
	}
	return g.checkHost(u.Hostname(), u.Scheme == "http")
}

// checkHost refuses hosts that can never be reached.
func (g Guard) checkHost(host string, plain bool) error {
	if at, err := netip.ParseAddr(host); err == nil {
		if !g.allows(at, plain) {
			return fmt.Errorf("leads to %s: %w", at, errAddress)
		}
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := strconv.ParseUint(strings.TrimPrefix(last, "0x"), 16, 64)
	switch {
	case last == "" || strings.ContainsAny(name, "%[]:"):
		return errors.New("has no valid host name")
	case err == nil && (strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""):
		return errors.New("has an address that is written neither as 192.0.2.1 nor as [2001:db8::1]")
	case last == "localhost" && !g.allows(netip.AddrFrom4([4]byte{127, 0, 0, 1}), plain) && !g.allows(netip.IPv6Loopback(), plain):
		return fmt.Errorf("leads to this machine: %w", errAddress)
	}
	return nil
}

// Named reports whether a URL leads only to the networks of the setting: what an operator has
// named need not be asked whether it wants messages. It looks up no name.
func (g Guard) Named(text string) bool {
	u, err := url.Parse(text)
	if err != nil || g.CheckURL(text) != nil {
		return false
	}
	if u.Scheme == "http" { // goes nowhere else
		return true
	}
	if strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "localhost") {
		return g.names(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && g.names(netip.IPv6Loopback())
	}
	at, err := netip.ParseAddr(u.Hostname())
	return err == nil && g.names(at)
}
