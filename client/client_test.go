//go:build go1.25

package client_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triprize.example/client"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "example.com", "/v1", "ftp://example.com", "https://", "https://me:secret@example.com", "https://me:secret@%zz", "https://example.com?a=b", "https://example.com#a", "https://%zz"} {
		if _, err := client.New(base, "tp_key"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("base URL %q: %v", base, err)
		}
	}
	for _, credential := range []string{"", "tp_a b", "tp_a\n", "tp_ä"} {
		if _, err := client.New("https://example.com", credential); err == nil {
			t.Errorf("credential %q", credential)
		}
	}
	for _, o := range []client.Option{client.WithTimeout(-1), client.WithTimeout(0), client.WithMaxAnswer(0), client.WithRetry(client.RetryPolicy{Attempts: -1}), client.WithRetry(client.RetryPolicy{Elapsed: -1})} {
		if _, err := client.New("https://example.com", "tp_key", o); err == nil {
			t.Error("an impossible option")
		}
	}
}

func TestConnectionsAreReused(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n%2 == 0 {
				refuseWith(w, http.StatusConflict, client.CodeStateConflict, "")
			}
			return n%2 == 0
		}
		c := s.client()
		for range 20 {
			_, _ = c.GetCampaign(t.Context(), campaign)
		}
		if s.dialed != 1 || len(s.seen()) != 20 {
			t.Errorf("%d connections for %d requests", s.dialed, len(s.seen()))
		}
	})
}

func TestARedirectIsNotFollowed(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://simulator/elsewhere", http.StatusMovedPermanently)
			return true
		}
		_, err := s.client().Buy(t.Context(), campaign, one)
		if err == nil || !strings.Contains(err.Error(), "https://simulator/elsewhere") || len(s.seen()) != 1 {
			t.Errorf("%d requests: %v", len(s.seen()), err)
		}
	})
}

func TestAServerThatIsNotWhoItSaysIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	var connections atomic.Int32
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	c, err := client.New(server.URL, "tp_key", client.WithRetry(client.RetryPolicy{First: 1}),
		client.WithTimeout(time.Hour), client.WithHTTPClient(&http.Client{Transport: new(http.Transport)})) // which waits for a handshake as long
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Buy(t.Context(), campaign, one); err == nil || connections.Load() != 1 {
		t.Errorf("%d connections: %v", connections.Load(), err)
	}
}

func TestAnAnswerThatIsNoneIsAnErrorAndIsNotAskedForAgain(t *testing.T) {
	for status, bodies := range map[int][]string{
		http.StatusOK:        {"", "null", "{}", "[]", "<html>", `{"id":7}`, `{"id":"x"}`, `{"state":[]}`, `{"id":"`, "\x00", strings.Repeat("[", 100_000)},
		http.StatusForbidden: {"", "<html>", "null", "[]", `{"message":"no"}`, `{"code":7}`}, // of a proxy
	} {
		for _, body := range bodies {
			t.Run("", func(t *testing.T) {
				simulate(t, func(t *testing.T, s *simulator) {
					s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
						w.WriteHeader(status)
						_, _ = w.Write([]byte(body))
						return true
					}
					j, err := s.client().Buy(t.Context(), campaign, one)
					if err == nil || len(s.seen()) != 1 || status == http.StatusForbidden && !strings.Contains(err.Error(), "403 forbidden") {
						t.Errorf("%q is %+v, %v, after %d requests", body, j, err, len(s.seen()))
					}
					if j, err := s.client().Wait(t.Context(), jobID); err == nil {
						t.Errorf("%q is %+v", body, j)
					}
				})
			})
		}
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	for bytesLeft, good := range map[int]bool{0: true, 1: false, 1 << 20: false} {
		t.Run(strconv.Itoa(bytesLeft), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				body := append([]byte(`{"name":"A"}`), bytes.Repeat([]byte(" "), 88+bytesLeft)...)
				s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write(body); return true }
				_, err := s.client(client.WithMaxAnswer(100)).GetCampaign(t.Context(), campaign)
				if (err == nil) != good || len(s.seen()) != 1 {
					t.Errorf("%d requests: %v", len(s.seen()), err)
				}
			})
		})
	}
}

func TestAnEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		written := make(chan int, 1)
		s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			total, chunk := 0, bytes.Repeat([]byte(" "), 1<<10)
			for total < 16<<20 {
				n, err := w.Write(chunk)
				if total += n; err != nil {
					break
				}
			}
			written <- total
			return true
		}
		_, err := s.client(client.WithMaxAnswer(1<<10)).GetCampaign(t.Context(), campaign)
		if n := <-written; err == nil || n > 1<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// What another person must approve is no answer, and is asked for once.
func TestARequestForAnApprovalIsAnErrorOfItsOwn(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Location", "/v1/approvals/"+jobID.String())
		say(w, http.StatusAccepted, client.Approval{ID: jobID, State: client.ApprovalStatePending, Operation: "wallet.credit"})
	}))
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "tp_key")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreditWallet(t.Context(), campaign, client.Movement{Amount: 1})
	var requested *client.ApprovalRequested
	if !errors.As(err, &requested) || requested.Approval.ID != jobID || asked != 1 || !strings.Contains(err.Error(), "needs another person's approval") {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
