package httpapi_test

import (
	"io"
	"testing"

	"triprize/internal/testkit/fleet"
)

// Every code of the contract occurs: e2e/testdata/values.txt names a test for each. Here are
// those that no other test from outside asks for.

func TestWhatCannotBeHeldSaysWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_HOLDS_MAX_PER_USER=1")
	path, _ := sells(s, nil) // of six positions
	first := fleet.Fields{"user_id": "mina", "positions": []fleet.Fields{{"layer": 1, "column": 1}}}
	if a := s.Execute(path+"/holds", first); a.Refusal() != "" {
		t.Fatal(a)
	}
	for code, body := range map[string]fleet.Fields{
		"position-taken":      {"user_id": "otto", "positions": first["positions"]},
		"hold-limit-exceeded": {"user_id": "mina", "quantity": 1},
		"none-available":      {"user_id": "otto", "quantity": 6},
	} {
		if a := s.Execute(path+"/holds", body); a.Refusal() != code {
			t.Errorf("%s: %v %s", code, a, a.Body)
		}
	}
}

func TestARequestWithoutALengthOrAnEndIsRefusedWithItsCode(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_API_READ_TIMEOUT=500ms")
	for code, head := range map[string]string{
		"length-required": "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: gzip\r\n\r\n",
		"request-timeout": "POST /v1/campaigns HTTP/1.1\r\nHost: ap",
	} {
		conn := dial(s)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !fleet.Contains(answer, `"code":"`+code+`"`) {
			t.Errorf("%s: %s, %v", code, answer, err)
		}
	}
}
