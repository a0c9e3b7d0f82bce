package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"triprize/internal/testkit/fleet"
)

// Postgres refuses NUL and what is not UTF-8 in texts. A request with such a
// text, in any place, must be refused before, and is the client's error.
func TestTextThatPostgresRefusesIsRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Schedulers: -1,
		Env: append([]string{"TRIPRIZE_LIMITS_USER_RATE=0", "TRIPRIZE_STREAMS_HEARTBEAT=100ms", "TRIPRIZE_STREAMS_MAX_AGE=200ms"}, fleet.Trusting.Env...)})
	mina := fleet.TokenFor(t, "mina", "")
	m := newMaker(t, map[string]string{"operator": s.Operator})
	m.start(s)
	sent := 0
	send := func(what, text string) {
		t.Helper()
		sent++
		answers := wire(s, what, text)
		if len(answers) != 1 || answers[0].Status >= 500 {
			t.Errorf("%s: %v in %.300q", what, answers, text)
		}
	}
	zeros := strings.Repeat("0", 64)
	for _, credential := range []string{"Bearer tp_" + strings.Repeat("\xff", 12) + "_" + zeros, "Bearer tp_000000000000_" + strings.Repeat("\xff", 64), "Bearer tp_\xc3\x28\xc3\x28\xc3\x28\xc3\x28\xc3\x28\xc3\x28_" + zeros,
		"Bearer \xff.\xff.\xff", "Bearer " + mina[:20] + "\xff" + mina[20:], "Bearer \xff", "Basic \xff",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("a:tp_"+strings.Repeat("\x00", 12)+"_"+zeros)), "Basic " + base64.StdEncoding.EncodeToString([]byte("a:tp_"+strings.Repeat("\xff", 12)+"_"+zeros)),
	} {
		for _, path := range []string{"/v1/campaigns", "/asynqmon"} {
			answers := wire(s, credential, "GET "+path+" HTTP/1.1\r\nHost: api\r\nAuthorization: "+credential+"\r\n\r\n")
			if len(answers) != 1 || answers[0].Status != http.StatusUnauthorized {
				t.Errorf("%q at %s: %v", credential, path, answers)
			}
		}
	}
	for _, o := range m.operations {
		head := func(path, header, body string) string {
			return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: api\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", o.method, path, s.Operator, header, len(body), body)
		}
		request := rapid.Custom(func(rt *rapid.T) *http.Request { r, _ := m.request(rt, "", o); return r }).Example(1)
		var body bytes.Buffer
		_, _ = body.ReadFrom(request.Body)
		const key = "Idempotency-Key: %s\r\n"
		for _, bad := range []string{"%00", "a%00b", "%ff", "a%ed%a0%80", "%c0%80"} {
			for _, p := range o.parameters {
				switch p.Value.In {
				case "path":
					path := o.path
					for _, other := range o.parameters {
						text := append(m.ids[other.Value.Name], "1")[0]
						if other == p {
							text = bad
						}
						path = strings.Replace(path, "{"+other.Value.Name+"}", text, 1)
					}
					send(o.OperationID, head(path, fmt.Sprintf(key, "k"), body.String()))
				case "query":
					send(o.OperationID, head(request.URL.EscapedPath()+"?"+p.Value.Name+"="+bad, fmt.Sprintf(key, "k"), body.String()))
				}
			}
		}
		for _, p := range o.parameters {
			if p.Value.In == "header" {
				send(o.OperationID, head(request.URL.EscapedPath(), p.Value.Name+": \xff\"\xc0\x80\"\r\n", body.String()))
			}
		}
		if o.RequestBody == nil {
			continue
		}
		for seed := range 4 {
			value := rapid.Custom(func(rt *rapid.T) any {
				return m.value(rt, o.RequestBody.Value.Content["application/json"].Schema.Value)
			}).Example(seed)
			text, _ := json.Marshal(value)
			for _, at := range quoted(text) {
				for _, bad := range []string{`\u0000`, "\xff", `\ud800`, "\xed\xa0\x80", "\x00", `a\u0000b`} {
					changed := string(text[:at[0]]) + bad + string(text[at[1]:])
					send(o.OperationID, head(request.URL.EscapedPath(), fmt.Sprintf(key, fmt.Sprint(sent)), changed))
				}
			}
		}
	}
	if sent < 300 {
		t.Errorf("only %d requests", sent)
	}
	for _, name := range []string{"api-1", "worker-1"} {
		for line := range bytes.Lines(s.Log(name)) {
			if bytes.Contains(line, []byte("ERROR")) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// quoted returns where the strings of a JSON text are, names and values, the first
// thirty.
func quoted(text []byte) (places [][2]int) {
	for i := 0; i < len(text) && len(places) < 30; i++ {
		if text[i] != '"' {
			continue
		}
		end := i + 1
		for text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		places = append(places, [2]int{i + 1, end})
		i = end
	}
	return slices.Clip(places)
}
