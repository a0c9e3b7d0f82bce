package main

import (
	"io"
	"strings"
	"testing"
)

func TestEveryBreakIsListedAndEveryEntryIsOfABreak(t *testing.T) {
	t.Parallel()
	const found = `[{"id": "removed", "operation": "GET", "path": "/v1/jobs", "text": "removed the property refund", "level": 3}]`
	for name, c := range map[string]struct{ entries, fault string }{
		"listed":            {`[{id: removed, operation: GET /v1/jobs, says: refund, reason: several}]`, ""},
		"of any operation":  {`[{id: removed, reason: several}]`, ""},
		"not listed":        {`[]`, "1 differences"},
		"another operation": {`[{id: removed, operation: GET /v1/holds, reason: several}]`, "2 differences"},
		"another property":  {`[{id: removed, says: state, reason: several}]`, "2 differences"},
		"without a reason":  {`[{id: removed}]`, "1 differences"},
		"of no break":       {`[{id: removed, reason: several}, {id: added, reason: none}]`, "1 differences"},
		"not understood":    {`[{kind: removed}]`, "field kind not found"},
	} {
		err := compare(strings.NewReader(found), []byte("since: abc\nbreaks: "+c.entries), io.Discard)
		if err == nil && c.fault != "" || err != nil && (c.fault == "" || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
