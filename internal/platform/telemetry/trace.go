package telemetry

import (
	"regexp"
	"strings"
)

// traceParent matches the header traceparent of W3C Trace Context: version, trace id, parent id and flags.
// Versions after 00 may have more.
var traceParent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)

// Traceparent returns a traceparent header in version 00, or "" if it is empty or invalid.
func Traceparent(header string) string {
	const longest = 512
	if len(header) > longest {
		return ""
	}
	found := traceParent.FindStringSubmatch(header)
	if found == nil || found[1] == "ff" || found[1] == "00" && found[4] != "" ||
		strings.Trim(found[2], "0") == "" || strings.Trim(found[3], "0") == "" {
		return ""
	}
	return "00" + header[2:length]
}

// length is the length of a traceparent in version 00.
const length = 55

// TraceID returns the trace id (32 hex digits) in a result of Traceparent; "" for "".
func TraceID(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	return traceparent[3:35]
}
