package config

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"triprize/internal/domain/fairdraw"
)

// Timestamps are of freeze records, by authorities.
type Timestamps struct {
	Default     bool          `mapstructure:"default"`
	Authorities string        `mapstructure:"authorities" validate:"max=8192"`
	Timeout     time.Duration `mapstructure:"timeout" constant:"5s"` // one query
	Margin      time.Duration `mapstructure:"margin" constant:"5s"`  // nobody is asked any more when the beacon's round is due within this; the draw goes on unwitnessed then
}

// Authority is an RFC 3161 authority: where it answers, and the file with its certificates
// in PEM, the root first.
type Authority struct {
	URL  string
	File string
}

// maxAuthorities bounds the authorities, which are asked all at once.
const maxAuthorities = 8

// Enabled tells whether there are authorities to ask.
func (t Timestamps) Enabled() bool { return len(t.List()) > 0 }

// List returns the authorities.
func (t Timestamps) List() []Authority {
	var all []Authority
	for entry := range strings.SplitSeq(t.Authorities, ",") {
		if address, file, _ := strings.Cut(strings.TrimSpace(entry), " "); address != "" {
			all = append(all, Authority{URL: address, File: strings.TrimSpace(file)})
		}
	}
	return all
}

// checkTimestamps refuses authorities that nobody could ask. http is allowed: a token is
// signed, and what is asked about is a hash that is public anyway. A listener learns
// nothing, and a lie is found out.
func checkTimestamps(t Timestamps, b Beacon) error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fault("timestamps.authorities", format, args...)) }
	list := t.List()
	if len(list) > maxAuthorities {
		bad("has %d authorities, must have %d at most", len(list), maxAuthorities)
	}
	for i, a := range list {
		if u, err := url.Parse(a.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			bad("authority %d must begin with an http:// or https:// URL", i+1)
		}
		if a.File == "" {
			bad("authority %d has no file; write: URL FILE", i+1)
		}
	}
	if t.Default && len(list) == 0 {
		all = append(all, fault("timestamps.default", "is true, and there is nobody in timestamps.authorities"))
	}
	chain, err := b.Chain()
	if ahead := (fairdraw.RoundsAhead - 1) * time.Duration(chain.PeriodS) * time.Second; err == nil && len(list) > 0 && t.Margin+t.Timeout >= ahead {
		bad("a chain whose rounds are %d s apart leaves them %s between a freeze and its round, and they need %s", chain.PeriodS, ahead, t.Margin+t.Timeout)
	}
	return errors.Join(all...)
}
