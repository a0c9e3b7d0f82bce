package webhookhttp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// NewChallenge returns a random text that nobody knows before the message that brings it.
func NewChallenge() string { return rand.Text() }

var errNoEcho = errors.New("the answer is not the challenge")

// Challenge sends a message that brings a challenge. The answer has arrived when it is 2xx and
// its body is the challenge: as a text, or as member challenge of a JSON object. A body that
// only contains the message is no echo.
func (s *Sender) Challenge(ctx context.Context, to string, m Message, challenge string) Answer {
	var body bytes.Buffer
	answer := s.post(ctx, to, m, &body)
	if answer.Arrived() && !echoes(body.Bytes(), challenge) {
		answer.Err = errNoEcho
	}
	return answer
}

func echoes(body []byte, challenge string) bool {
	var object struct {
		Challenge string `json:"challenge"`
	}
	return string(bytes.TrimSpace(body)) == challenge || json.Unmarshal(body, &object) == nil && object.Challenge == challenge
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

const lookupTimeout = 5 * time.Second

// Named is that of the Guard, and looks up the name as well.
func (s *Sender) Named(ctx context.Context, text string) bool {
	u, err := url.Parse(text)
	if err != nil || len(s.guard.networks) == 0 {
		return false
	}
	if s.guard.Named(text) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all, err := s.resolver.LookupNetIP(ctx, "ip", u.Hostname())
	return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(at netip.Addr) bool { return !s.guard.names(at) })
}
