package openapi

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"triprize/internal/domain/fault"
)

// CheckNames checks which parameters a request has in its query, and which headers: a name that
// the operation does not take would change nothing, and its sender would not know. Of the headers
// it refuses what is nearly one of the contract's, as X-Idempotency-Key is, and an If-Match that
// nobody would look at. All others are not ours to judge.
func (o *Operation) CheckNames(query, headers iter.Seq2[[]byte, []byte]) (faults []fault.Field) {
	var seen []string
	for key := range query {
		name := string(key)
		if slices.Contains(seen, name) {
			faults = append(faults, fault.Field{Pointer: "?" + name, Detail: "is there twice"})
		} else if !slices.Contains(o.query, name) {
			faults = append(faults, o.unknown(name))
		}
		if len(faults) == maxFaults {
			return faults
		}
		seen = append(seen, name)
	}
	for name := range headers {
		switch meant := meantBy(name, o.headers); {
		case meant != "" && len(faults) < maxFaults:
			faults = append(faults, fault.Field{Pointer: string(name), Detail: "is not a header of this API; did you mean " + meant + "?"})
		case o.ignoresVersion && bytes.EqualFold(name, ifMatch):
			faults = append(faults, fault.Field{Pointer: string(name), Detail: "is not taken by this operation: it would not look at the version"})
		}
	}
	return faults
}

// unknown says of a parameter what may have been meant.
func (o *Operation) unknown(name string) fault.Field {
	if len(name) > maxName {
		return fault.Field{Pointer: "?", Detail: "has a parameter whose name is too long to be known"}
	}
	detail := "is not a parameter of this operation"
	if near := nearest(name, o.query); near != "" {
		detail += "; did you mean " + near + "?"
	}
	if len(o.query) == 0 {
		return fault.Field{Pointer: "?" + name, Detail: detail + ", which takes none"}
	}
	return fault.Field{Pointer: "?" + name, Detail: strings.TrimSuffix(detail, "?") + " (it takes " + strings.Join(o.query, ", ") + ")"}
}

// nearest returns the name that another was probably meant to be, or "".
func nearest(name string, known []string) (best string) {
	plain := plainName(name)
	least := len(plain)/3 + 1
	for _, k := range known {
		other := plainName(k)
		d := distance(plain, other)
		if len(plain) > 2 && (strings.HasPrefix(other, plain) || strings.HasPrefix(plain, other)) {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// header is one of the contract's headers, with its plain name.
type header struct{ name, plain string }

// ordinary are headers of nearly every request, and far from any of ours: no request pays for a look at them.
var ordinary = map[string]bool{"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Authorization": true, "Connection": true,
	"Content-Length": true, "Content-Type": true, "Host": true, "Origin": true, "Referer": true, "User-Agent": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Proto": true}

var ifMatch = []byte("If-Match")

// meantBy returns the header that another one is nearly: with the same letters, or one wrong in
// five. No header that is registered, or that proxies add, is as near to one of ours.
func meantBy(sent []byte, known []header) string {
	const most = 24 // bytes; none of ours is as long
	if len(sent) > most || ordinary[string(sent)] {
		return ""
	}
	name := string(sent)
	if slices.ContainsFunc(known, func(h header) bool { return strings.EqualFold(name, h.name) }) {
		return ""
	}
	plain := plainName(name)
	for _, h := range known {
		allowed := len(h.plain) / 5
		if d := len(plain) - len(h.plain); d <= allowed && -d <= allowed && distance(plain, h.plain) <= allowed {
			return h.name
		}
	}
	return ""
}

// plainName is a name without what people mistake in it: case, dashes, underscores and an X- before it.
func plainName(name string) string {
	name = strings.TrimPrefix(strings.ToLower(name), "x-")
	return strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", "")
}

// distance is how many letters are to be changed, added or left out to make one text of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
