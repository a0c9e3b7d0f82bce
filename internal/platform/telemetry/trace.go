package telemetry

import (
	"regexp"
	"strings"
)

// traceParent is the header traceparent of W3C Trace Context: version, trace id, parent id
// and flags. Versions after 00 may have more behind that.
var traceParent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)

// Traceparent returns what a traceparent header says, in version 00; "" when the header is
// empty or not valid: such a header is ignored, as its specification asks.
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

// length is that of a traceparent in version 00.
const length = 55

// TraceID returns the trace id in a result of Traceparent, 32 hex digits; "" for "".
func TraceID(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	return traceparent[3:35]
}
