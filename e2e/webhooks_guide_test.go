//go:build soak

package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// sentMessage is what a receiver has been sent.
type sentMessage struct {
	header http.Header
	body   string
}

// byHand verifies a message as the page says, with its own shell block.
func (m sentMessage) byHand(t *testing.T, block, secret string) bool {
	t.Helper()
	out := paste(t, block, "WEBHOOK_SECRET="+secret, "WEBHOOK_ID="+m.header.Get("webhook-id"),
		"WEBHOOK_TIMESTAMP="+m.header.Get("webhook-timestamp"), "BODY="+m.body)
	return slices.Contains(strings.Fields(m.header.Get("webhook-signature")), "v1,"+strings.TrimSpace(out))
}

// The page's address stands for that of a receiver in this test; all else is as it is.
func TestThePageAboutWebhooksWorksAsPasted(t *testing.T) {
	t.Parallel()
	sent := make(chan sentMessage, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			sent <- sentMessage{r.Header, string(body)}
		}
	}))
	t.Cleanup(receiver.Close)
	await := func(event string) sentMessage {
		t.Helper()
		for end := time.After(servers.Patience); ; {
			select {
			case m := <-sent:
				if m.header.Get("webhook-id") == event {
					return m
				}
			case <-end:
				t.Fatalf("%s was never sent", event)
			}
		}
	}
	const example = "https://shop.example/triprize"
	page := document(t, webhooksGuide)
	verify := regexp.MustCompile("(?s)```sh\nKEY=.*?```").FindString(page)
	if verify == "" || !strings.Contains(page, example) {
		t.Fatal("the block that verifies by hand, or the address, is gone")
	}
	script := strings.ReplaceAll(blocks(strings.Replace(page, verify, "", 1)), example, receiver.URL)
	byHand := strings.TrimSuffix(blocks(verify), "echo\n")

	_, dev := startDev(t, openDir(t))
	out := paste(t, script, "API="+dev.APIURL, "APP="+dev.AppKey)
	inOrder(t, out, `"secret":"whsec_`, // made,
		`"type":"webhook-endpoint.test"`, `"type":"webhook-endpoint.test"`, `"attempts":[`, // tested, and looked at,
		`"state":"enabled"`, `"type":"webhook-endpoint.test"`, `"state":"pending"`, `"replayed":0`, // enabled, sent again, nothing has failed,
		`"secret":"whsec_`, // another secret,
		`127.0.0.1:3000`)   // and an endpoint on the own machine
	secrets := regexp.MustCompile(`"secret":"(whsec_[^"]+)"`).FindAllStringSubmatch(out, -1)
	event := regexp.MustCompile(`"event_id":"([^"]+)"`).FindStringSubmatch(out)
	endpoint := regexp.MustCompile(`"endpoint_id":"([^"]+)"`).FindStringSubmatch(out)
	if len(secrets) != 3 || event == nil || endpoint == nil {
		t.Fatalf("%d secrets, event %v of %v", len(secrets), event, endpoint)
	}
	first, second := secrets[0][1], secrets[1][1]
	if m := await(event[1]); !m.byHand(t, byHand, first) || m.byHand(t, byHand, "whsec_"+strings.Repeat("AAAA", 8)) {
		t.Errorf("the block does not tell who has signed: %+v", m)
	}
	// While the two overlap, either verifies.
	s := &fleet.System{T: t, URLs: []string{dev.APIURL}, App: dev.AppKey}
	again := s.Do(0, s.App, http.MethodPost, "/v1/webhook-endpoints/"+endpoint[1]+"/test", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
	event = regexp.MustCompile(`"event_id":"([^"]+)"`).FindStringSubmatch(string(again.Body))
	if event == nil {
		t.Fatalf("%v %s", again, again.Body)
	}
	if m := await(event[1]); !m.byHand(t, byHand, first) || !m.byHand(t, byHand, second) {
		t.Errorf("after the rotation: %+v", m)
	}
}
