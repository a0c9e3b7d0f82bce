package sender

import (
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

// cloudHosts are the addresses at which clouds answer their machines, and give them credentials: whatever the
// setting says, no receiver is there. 168.63.129.16 is not even in a network that is not public.
var cloudHosts = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254")}

// allows reports whether a request may go to an address; plain: without TLS.
func (g Guard) allows(at netip.Addr, plain bool) bool {
	if at.Zone() != "" || g.public == nil || slices.Contains(cloudHosts, at.Unmap()) {
		return false
	}
	if slices.ContainsFunc(g.networks, func(p netip.Prefix) bool { return p.Contains(at) }) {
		return true
	}
	return !plain && g.public.SafeAddr(at) == nil
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

func (g Guard) names(at netip.Addr) bool {
	return slices.ContainsFunc(g.networks, func(p netip.Prefix) bool { return p.Contains(at.Unmap()) || p.Contains(at) })
}
