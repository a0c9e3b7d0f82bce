package sender

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/servers"
)

func TestOnlyTheChallengeIsAnEcho(t *testing.T) {
	t.Parallel()
	const challenge = "Q2hhbGxlbmdl"
	sent := fmt.Sprintf(`{"type":"webhook-endpoint.verification","data":{"challenge":%q}}`, challenge)
	for body, want := range map[string]bool{
		challenge: true, " " + challenge + "\n": true, `{"challenge":"` + challenge + `","ok":true}`: true,
		"": false, "ok": false, challenge[1:]: false, challenge + challenge: false, `["` + challenge + `"]`: false, `"` + challenge + `"`: false, `{"challenge":""}`: false,
		sent:              false, // of a server that answers with all that it gets
		"<p>" + challenge: false,
	} {
		for status, ok := range map[int]bool{200: true, 202: true, 404: false, 500: false} {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) })
			answer := sender(t, unhurried, Options{}).Challenge(t.Context(), url, Message{ID: "1", Body: []byte(sent), Secrets: []string{NewSecret()}}, challenge)
			if answer.Arrived() != (want && ok) || answer.Status != status {
				t.Errorf("%d %q: %+v", status, body, answer)
			}
		}
	}
}

func TestOnlyWhatTheOperatorHasNamedNeedNotBeAsked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"http://127.0.0.1:3000/": true, "https://127.0.0.1:3000/": true, "http://shop.internal/": true, // http leads nowhere else
		"https://8.8.8.8/": false, "http://8.8.8.8/": false, "https://localhost/": false, "no URL": false,
	} {
		if got := guard(t, "127.0.0.1/32").Named(url); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

func TestAnAppLearnsNothingAboutTheInside(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certificate.Close)
	forever := make(chan struct{})
	slow := serve(t, func(http.ResponseWriter, *http.Request) { <-forever })
	t.Cleanup(func() { close(forever) })
	teapot := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	closed, err := devstack.FreeAddress()
	servers.NoError(t, err)
	for what, c := range map[string]struct{ url, want string }{
		"a port that is closed": {"http://" + closed, Unreachable}, "a name that is not there": {"http://db.invalid", Unreachable},
		"a name of the inside": {"http://inside.example", Unreachable}, "an address that is not allowed": {"https://10.0.0.1", Unreachable},
		"no HTTP":   {raw(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n") }), Unreachable},
		"a hang-up": {raw(t, func(net.Conn) {}), Unreachable}, "a certificate of nobody": {certificate.URL, TLS},
		"no TLS": {"https" + teapot[len("http"):], TLS}, "no answer": {slow, Timeout}, "an answer": {teapot, "answered 418"},
	} {
		patience := unhurried
		if c.want == Timeout {
			patience = brief
		}
		resolver := names(t, func() [4]byte { return map[string][4]byte{"a name of the inside": {10, 0, 0, 1}}[what] })
		answer := sender(t, patience, Options{Resolver: resolver}).Send(t.Context(), c.url, Message{ID: "1", Secrets: []string{NewSecret()}})
		if answer.ClientText() != c.want || answer.Text() == Unreachable {
			t.Errorf("%s: told %q, want %q; operators: %q", what, answer.ClientText(), c.want, answer.Text())
		}
	}
}
