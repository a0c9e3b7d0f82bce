package response

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Accepted returns the media type that a client likes best, of those that an answer can have
// (RFC 9110, section 12.5.1): the first one, unless it asks for another. Media types are compared
// without case, and without parameters but q.
func Accepted(c *fiber.Ctx, offers ...string) string {
	header := string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAccept), []byte(",")))
	best, most := offers[0], weight{}
	for _, offer := range offers {
		if w := weightOf(header, offer); w.more(most) {
			best, most = offer, w
		}
	}
	return best
}

// weight is how much a client likes a media type.
type weight struct {
	quality float64
	exact   int // 3: it has named the type; 2: type/*; 1: */*
	at      int // its place in the header
}

func (w weight) more(than weight) bool {
	if w.quality != than.quality {
		return w.quality > than.quality
	}
	return w.quality > 0 && (w.exact > than.exact || w.exact == than.exact && w.at < than.at)
}

// weightOf returns the weight that a header gives to a media type: that of its most exact range.
func weightOf(header, media string) (found weight) {
	family, _, _ := strings.Cut(media, "/")
	at := 0
	for text := range strings.SplitSeq(header, ",") {
		at++
		name, parameters, _ := strings.Cut(text, ";")
		w := weight{quality: 1, at: at}
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, media):
			w.exact = 3
		case strings.EqualFold(name, family+"/*"):
			w.exact = 2
		case name == "*/*":
			w.exact = 1
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if key, value, _ := strings.Cut(parameter, "="); strings.EqualFold(strings.TrimSpace(key), "q") {
				if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
					w.quality = q
				}
			}
		}
		if w.exact > found.exact || w.exact > 0 && w.exact == found.exact && w.quality > found.quality {
			found = w
		}
	}
	return found
}
