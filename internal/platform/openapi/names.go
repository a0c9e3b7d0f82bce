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
// it refuses one of the contract's with other dashes or an X- before it, as X-Idempotency-Key is, and
// an If-Match that nobody would look at. All others are not ours to judge.
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
		switch meant := misspelt(name, o.headers); {
		case meant != "" && len(faults) < maxFaults:
			faults = append(faults, fault.Field{Pointer: string(name), Detail: "is not a header of this API; its name is " + meant})
		case o.ignoresVersion && bytes.EqualFold(name, ifMatch):
			faults = append(faults, fault.Field{Pointer: string(name), Detail: "is not taken by this operation: it would not look at the version"})
		}
	}
	return faults
}

func (o *Operation) unknown(name string) fault.Field {
	if len(name) > maxName {
		return fault.Field{Pointer: "?", Detail: "has a parameter whose name is too long to be known"}
	}
	if len(o.query) == 0 {
		return fault.Field{Pointer: "?" + name, Detail: "is not a parameter of this operation, which takes none"}
	}
	return fault.Field{Pointer: "?" + name, Detail: "is not a parameter of this operation (it takes " + strings.Join(o.query, ", ") + ")"}
}

// header is one of the contract's headers, with its plain name.
type header struct{ name, plain string }

// ordinary are headers of nearly every request, and far from any of ours: no request pays for a look at them.
var ordinary = map[string]bool{"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Authorization": true, "Connection": true,
	"Content-Length": true, "Content-Type": true, "Host": true, "Origin": true, "Referer": true, "User-Agent": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Proto": true}

var ifMatch = []byte("If-Match")

// misspelt returns the header whose plain name another one has, or "".
func misspelt(sent []byte, known []header) string {
	const most = 24 // bytes; none of ours is as long
	if len(sent) > most || ordinary[string(sent)] {
		return ""
	}
	name := string(sent)
	if slices.ContainsFunc(known, func(h header) bool { return strings.EqualFold(name, h.name) }) {
		return ""
	}
	plain := plainName(name)
	if i := slices.IndexFunc(known, func(h header) bool { return plain == h.plain }); i >= 0 {
		return known[i].name
	}
	return ""
}

// plainName is a name without what people mistake in it: case, dashes, underscores and an X- before it.
func plainName(name string) string {
	name = strings.TrimPrefix(strings.ToLower(name), "x-")
	return strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", "")
}
