package stripe

import (
	"regexp"
	"strings"
)

// maxText bounds a text of Stripe in errors and logs, in bytes.
const maxText = 500

// secretTexts finds client secrets (pi_…_secret_…), keys, and what may be card numbers.
var secretTexts = regexp.MustCompile(`_secret_[A-Za-z0-9]+|\b[srp]k_(?:test|live)_[A-Za-z0-9*]+|\b(?:\d[ -]?){12,18}\d\b`)

// scrubber takes secrets out of texts.
type scrubber struct{ replacer *strings.Replacer }

func newScrubber(secrets []string) scrubber {
	var pairs []string
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, "…")
		}
	}
	return scrubber{strings.NewReplacer(pairs...)}
}

func (s scrubber) text(text string) string {
	text = secretTexts.ReplaceAllString(s.replacer.Replace(text), "…")
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "…")
}
