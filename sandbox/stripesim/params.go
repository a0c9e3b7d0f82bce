package stripesim

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// params are the parameters of a request by their names in the form, such as
// payment_method_options[card][capture_method]. The elements of a list share the
// name list[].
type params map[string][]string

// kind says which values a parameter takes.
type kind struct {
	integer bool
	least   int64    // of an integer
	most    int64    // of an integer; 0: no bound
	longest int      // characters of a text
	values  []string // if not empty, the only ones
	list    bool
	expand  bool // it names a field that is to be expanded
}

// parameters are those that an endpoint takes. The name metadata[*] takes any key.
type parameters map[string]kind

var (
	text    = kind{longest: 5000}
	texts   = kind{longest: 5000, list: true}
	boolean = oneOf("true", "false")
	number  = kind{integer: true}
)

func oneOf(values ...string) kind { return kind{values: values} }

// with returns the parameters of both.
func (p parameters) with(more parameters) parameters {
	all := maps.Clone(p)
	maps.Copy(all, more)
	return all
}

// expanding are the fields that expand[] may name.
func expanding(fields ...string) parameters {
	return parameters{"expand[]": {values: fields, list: true, expand: true}}
}

var (
	metadata = parameters{"metadata[*]": {longest: 500}}
	paging   = parameters{
		"limit": {integer: true, least: 1, most: 100}, "starting_after": text, "ending_before": text,
		"created": number, "created[gt]": number, "created[gte]": number, "created[lt]": number, "created[lte]": number,
	}
)

const (
	mostParams      = 500
	mostMetadata    = 50
	longestMetaName = 40
)

var index = regexp.MustCompile(`\[[0-9]*\]`)

// read checks the parameters of a request against those that its endpoint takes.
func (p parameters) read(form url.Values) (params, *apiError) {
	if len(form) > mostParams {
		return nil, refuse("", "", "The request has more than %d parameters.", mostParams)
	}
	read := params{}
	for _, sent := range slices.Sorted(maps.Keys(form)) {
		name := index.ReplaceAllString(sent, "[]")
		kind, known := p[name]
		if key, ok := metaName(name); ok && !known {
			kind, known = p["metadata[*]"]
			if known && len(key) > longestMetaName {
				return nil, refuse("", sent, "Metadata keys can be at most %d characters.", longestMetaName)
			}
		}
		if !known {
			return nil, refuse("parameter_unknown", sent, "Received unknown parameter: %s (the sandbox knows: %s)", sent, strings.Join(slices.Sorted(maps.Keys(p)), ", "))
		}
		values := form[sent]
		if !kind.list && len(values) > 1 {
			return nil, refuse("", sent, "The parameter %s is given more than once.", sent)
		}
		for _, value := range values {
			if problem := kind.check(sent, value); problem != nil {
				return nil, problem
			}
		}
		read[name] = append(read[name], values...)
	}
	if len(read.metadata()) > mostMetadata {
		return nil, refuse("", "metadata", "An object can have at most %d keys of metadata.", mostMetadata)
	}
	return read, nil
}

// metaName returns the key of metadata[key].
func metaName(name string) (key string, ok bool) {
	key, ok = strings.CutPrefix(name, "metadata[")
	if !ok || !strings.HasSuffix(key, "]") || len(key) < 2 {
		return "", false
	}
	key = key[:len(key)-1]
	return key, !strings.ContainsAny(key, "[]")
}

func (k kind) check(name, value string) *apiError {
	_, meta := metaName(name)
	if value == "" && !meta {
		return refuse("parameter_invalid_empty", name, "You passed an empty string for '%s'. We assume empty values are an attempt to unset a parameter; however '%s' cannot be unset.", name, name)
	}
	switch {
	case k.integer:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return refuse("parameter_invalid_integer", name, "Invalid integer: %s", value)
		}
		if n < k.least {
			return refuse("parameter_invalid_integer", name, "This value must be greater than or equal to %d.", k.least)
		}
		if k.most > 0 && n > k.most {
			return refuse("parameter_invalid_integer", name, "This value must be less than or equal to %d.", k.most)
		}
	case slices.Contains(k.values, value):
	case k.expand:
		return refuse("", "expand", "This property cannot be expanded (%s). You can expand: %s.", value, strings.Join(k.values, ", "))
	case len(k.values) > 0:
		return refuse("", name, "Invalid %s: must be one of %s", name, strings.Join(k.values, ", "))
	case len(value) > k.longest:
		return refuse("", name, "Invalid string: %s…; must be at most %d characters", value[:20], k.longest)
	}
	return nil
}

func (p params) has(name string) bool { return len(p[name]) > 0 }

func (p params) text(name string) string { return strings.Join(p[name], ",") }

// is tells whether a parameter has a value, or is not given.
func (p params) is(name, value string) bool { return !p.has(name) || p.text(name) == value }

// number returns an integer that was checked before, or 0.
func (p params) number(name string) int64 {
	n, _ := strconv.ParseInt(p.text(name), 10, 64)
	return n
}

// metadata returns the keys with a value.
func (p params) metadata() map[string]string {
	values := map[string]string{}
	for name, value := range p {
		if key, ok := metaName(name); ok && value[0] != "" {
			values[key] = value[0]
		}
	}
	return values
}

// exclusive fails when both parameters are given.
func (p params) exclusive(one, other string) *apiError {
	if p.has(one) && p.has(other) {
		return refuse("parameters_exclusive", one, "You may only specify one of these parameters: %s, %s.", one, other)
	}
	return nil
}

// fingerprint is the same for the same parameters in any order.
func (p params) fingerprint() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%q=%q;", name, p[name])
	}
	return text.String()
}
