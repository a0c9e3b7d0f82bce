package openapi

import (
	"bytes"
	"iter"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"triprize/internal/domain/fault"
)

// CheckParameters checks the parameters in path, query and headers; get returns their values. noSuchPath means that a
// value in the path is invalid, so no resource can have this path.
func (o *Operation) CheckParameters(get func(in, name string) (text string, sent bool)) (faults []fault.Field, noSuchPath bool) {
	for _, p := range o.parameters {
		text, sent := get(p.in, p.name)
		if !sent {
			if p.required && p.in == "query" { // missing headers have their own error code, checked elsewhere
				faults = append(faults, fault.Field{Pointer: "?" + p.name, Detail: "is required"})
			}
			continue
		}
		pointer := p.name
		if p.in == "query" {
			pointer = "?" + p.name
		}
		details := p.is.ofParameter(text)
		if p.in != "header" && !utf8.ValidString(text) {
			details = append(details, "must be UTF-8")
		}
		for _, detail := range details {
			faults = append(faults, fault.Field{Pointer: pointer, Detail: detail})
		}
		noSuchPath = noSuchPath || p.in == "path" && len(details) > 0
	}
	return faults, noSuchPath
}

// Target returns the names and normalized values of the parameters in path and query, in the contract's order. get is
// as in CheckParameters, which must have found no fault.
func (o *Operation) Target(get func(in, name string) (text string, sent bool)) []string {
	var target []string
	for _, p := range o.parameters {
		text, _ := get(p.in, p.name)
		switch {
		case p.in != "path" && p.in != "query":
			continue
		case p.is.kind == "integer":
			if number, ok := new(big.Int).SetString(text, 10); ok {
				text = number.String()
			}
		default:
			text = p.is.spelled(text)
		}
		target = append(target, p.name, text)
	}
	return target
}

// ofParameter returns the faults of a parameter.
func (is *rule) ofParameter(text string) []string {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case is.kind == "integer" && err == nil && strconv.FormatInt(n, 10) == text:
		return is.ofNumber(float64(n))
	case is.kind == "boolean" && (text == "true" || text == "false"):
		return nil
	}
	return is.ofText(text)
}

// CheckNames rejects unknown and repeated query parameters, which would have no effect. It rejects headers that are
// misspelled names of the contract's, such as X-Idempotency-Key, and an If-Match that the operation would ignore. Other
// headers are allowed.
func (o *Operation) CheckNames(query, headers iter.Seq2[[]byte, []byte]) (faults []fault.Field) {
	var seen []string
	for key := range query {
		name := string(key)
		if slices.Contains(seen, name) {
			faults = append(faults, fault.Field{Pointer: "?" + name, Detail: "was sent twice"})
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
			faults = append(faults, fault.Field{Pointer: string(name), Detail: "is not supported by this operation, which does not check the version"})
		}
	}
	return faults
}

func (o *Operation) unknown(name string) fault.Field {
	if len(name) > maxName {
		return fault.Field{Pointer: "?", Detail: "has a parameter with a name that is too long"}
	}
	if len(o.query) == 0 {
		return fault.Field{Pointer: "?" + name, Detail: "is not a parameter of this operation, which takes none"}
	}
	return fault.Field{Pointer: "?" + name, Detail: "is not a parameter of this operation (it takes " + strings.Join(o.query, ", ") + ")"}
}

// ordinary are common headers that are not compared, for speed.
var ordinary = map[string]bool{"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Authorization": true, "Connection": true,
	"Content-Length": true, "Content-Type": true, "Host": true, "Origin": true, "Referer": true, "User-Agent": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Proto": true}

var ifMatch = []byte("If-Match")

// misspelt returns the header of the contract with the same plain name, or "".
func misspelt(sent []byte, known map[string]string) string {
	const limit = 24 // bytes; all of ours are shorter
	if len(sent) > limit || ordinary[string(sent)] {
		return ""
	}
	if name := known[plainName(string(sent))]; !strings.EqualFold(name, string(sent)) {
		return name
	}
	return ""
}

// plainName returns a name in lower case without dashes, underscores and the prefix X-.
func plainName(name string) string {
	name = strings.TrimPrefix(strings.ToLower(name), "x-")
	return strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", "")
}
