package webhook

import (
	"slices"
	"strings"
)

// everything is the filter of all events.
const everything = "*"

// Known reports whether a filter asks for something that there is: a type of events, a
// family with a star, or all. Tests cannot be asked for: they come anyway.
func Known(filter string) bool {
	if filter == everything {
		return true
	}
	if family, ok := strings.CutSuffix(filter, ".*"); ok {
		return slices.ContainsFunc(Types, func(one string) bool { return strings.HasPrefix(one, family+".") })
	}
	return filter != EndpointTest && slices.Contains(Types, filter)
}
