package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Witness is who timestamps freeze records.
type Witness struct {
	Default     bool          `mapstructure:"default"`
	Authorities string        `mapstructure:"authorities" validate:"max=8192"`
	Timeout     time.Duration `mapstructure:"timeout"     validate:"min=100ms,max=1m"`
	Margin      time.Duration `mapstructure:"margin"      validate:"min=0,max=5m"`
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
func (w Witness) Enabled() bool { return len(w.List()) > 0 }

// List returns the authorities.
func (w Witness) List() []Authority {
	var all []Authority
	for entry := range strings.SplitSeq(w.Authorities, ",") {
		if address, file, _ := strings.Cut(strings.TrimSpace(entry), " "); address != "" {
			all = append(all, Authority{URL: address, File: strings.TrimSpace(file)})
		}
	}
	return all
}

// checkWitness refuses authorities that nobody could ask. http is allowed: a token is
// signed, and what is asked about is a hash that is public anyway. Who listens learns
// nothing, and who lies is found out.
func checkWitness(w Witness) error {
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, fmt.Errorf("setting witness.authorities (%s): "+format, append([]any{variable("witness.authorities")}, args...)...))
	}
	list := w.List()
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
	if w.Default && len(list) == 0 {
		all = append(all, fmt.Errorf("setting witness.default (%s): is true, and there is nobody in witness.authorities", variable("witness.default")))
	}
	return errors.Join(all...)
}
