package endpoints

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// URLRules say which addresses events may be sent to.
type URLRules struct {
	PlainHTTP bool                        // http too, where the connection allows it
	Allowed   func(addr netip.Addr) error // whether an address may be connected to
}

// Check returns what is wrong with the form of an URL, or with the address that stands in it.
// A name is looked up, and its address checked, at each connection.
func (r URLRules) Check(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" || u.Hostname() == "":
		return errors.New("must be an absolute https URL, such as https://shop.example/triprize")
	case u.Scheme == "http" && !r.PlainHTTP:
		return errors.New("must begin with https: this system sends to no address over http")
	case u.User != nil:
		return errors.New("must not have a user name or password: the signature shows who sends")
	case strings.Contains(text, "#"):
		return errors.New("must not have a fragment: it would not be sent")
	case !goodPort(u):
		return errors.New("must have a port from 1 to 65535, or none")
	}
	return r.checkHost(u.Hostname())
}

func goodPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port >= 1 && port <= 65535
}

// checkHost refuses addresses that may not be connected to, names of this machine, and every
// notation of an IPv4 address but the usual one: what a resolver makes of it differs.
func (r URLRules) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return errors.New("must not have a zone")
		}
		if err := r.Allowed(addr.Unmap()); err != nil {
			return errors.New("is an address that events are not sent to: " + err.Error())
		}
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case strings.Contains(host, ":"), numeric(last):
		return errors.New("is neither a name nor an address in its usual notation")
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		if r.Allowed(netip.AddrFrom4([4]byte{127, 0, 0, 1})) != nil {
			return errors.New("is a name of this machine: events are not sent to it")
		}
	case len(name) > 253 || strings.ContainsFunc(name, func(c rune) bool {
		return c != '-' && c != '.' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	}):
		return errors.New("has a host that is no name in ASCII (write names in other scripts as xn--…)")
	}
	return nil
}

// numeric tells whether a label is a number, in decimal, octal or hex: then a resolver may take
// the whole name for an IPv4 address.
func numeric(label string) bool {
	_, err := strconv.ParseUint(label, 0, 64)
	if err == nil {
		return true
	}
	return label != "" && strings.Trim(label, "0123456789") == "" || strings.HasPrefix(label, "0x") && strings.Trim(label[2:], "0123456789abcdef") == ""
}
