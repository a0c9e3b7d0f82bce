//go:build go1.25

package client_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"triprize.example/client"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "example.com", "/v1", "ftp://example.com", "https://", "https://me:secret@example.com", "https://example.com?a=b", "https://example.com#a", "https://%zz"} {
		if _, err := client.New(base, "tp_key"); err == nil {
			t.Errorf("base URL %q", base)
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

func TestARequestSaysWhoAsksForWhat(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		c := s.client(client.WithUserAgent("shop/1"))
		patch := client.CampaignPatch{Name: "New", PurchaseLimit: nullable.NewNullNullable[int]()}
		if _, err := c.PatchCampaign(t.Context(), campaign, patch); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListCampaigns(t.Context(), client.ListCampaignsParams{State: client.CampaignStateActive, Limit: 7}); err != nil {
			t.Fatal(err)
		}
		r := s.seen()[0]
		if r.header.Get("Authorization") != "Bearer tp_key" || r.header.Get("User-Agent") != "shop/1" || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%v", r.header)
		}
		if r.body != `{"name":"New","purchase_limit":null}` {
			t.Error(r.body)
		}
		if r := s.seen()[1]; r.path != "/v1/campaigns?limit=7&state=active" || r.header.Get("Content-Type") != "" || r.body != "" {
			t.Errorf("%v", r)
		}
	})
}

func TestAUserStaysInItsSegmentOfThePath(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		c := s.client()
		for user, want := range map[string]string{"user-1": "user-1", "a/b": "a%2Fb", "..": "%2E%2E", "?x#y %": "%3Fx%23y%20%25", "ü": "%C3%BC"} {
			if _, err := c.ListPurchases(t.Context(), user, client.ListPurchasesParams{}); err != nil {
				t.Fatal(err)
			}
			if got := s.seen()[len(s.seen())-1].path; got != "/v1/users/"+want+"/purchases" {
				t.Errorf("user %q: %s", user, got)
			}
		}
	})
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
	c, err := client.New(server.URL, "tp_key", client.WithRetry(client.RetryPolicy{First: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Buy(t.Context(), campaign, one); err == nil || connections.Load() != 1 {
		t.Errorf("%d connections: %v", connections.Load(), err)
	}
}

func TestAMalformedAnswerIsAnError(t *testing.T) {
	for _, body := range []string{"", "null", "{}", "[]", "<html>", `{"id":7}`, `{"id":"x"}`, `{"state":[]}`, `{"id":"`, "\x00", strings.Repeat("[", 100_000)} {
		t.Run("", func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
					_, _ = w.Write([]byte(body))
					return true
				}
				if j, err := s.client().Buy(t.Context(), campaign, one); err == nil || len(s.seen()) != 1 {
					t.Errorf("%q is %+v, %v, after %d requests", body, j, err, len(s.seen()))
				}
				if j, err := s.client().Wait(t.Context(), jobID); err == nil {
					t.Errorf("%q is %+v", body, j)
				}
			})
		})
	}
}

func TestAnErrorOfAProxyIsAnErrorToo(t *testing.T) {
	for _, body := range []string{"", "<html>", "null", "[]", `{"message":"no"}`, `{"code":7}`} {
		t.Run("", func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
					w.WriteHeader(http.StatusForbidden)
					_, _ = w.Write([]byte(body))
					return true
				}
				_, err := s.client().Buy(t.Context(), campaign, one)
				if err == nil || !strings.Contains(err.Error(), "403 forbidden") {
					t.Errorf("%q: %v", body, err)
				}
			})
		})
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

func TestAHistoryIsTurnedInItsDirection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.ParseInt(r.URL.Query().Get("from_version"), 10, 64)
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			from, _ = strconv.ParseInt(cursor, 10, 64)
		}
		page := client.WalletEventPage{Events: []client.WalletEvent{{Version: from}, {Version: from + 1}}}
		if from < 5 {
			page.NextCursor = strconv.FormatInt(from+2, 10)
		}
		say(w, http.StatusOK, page)
	}))
	defer server.Close()
	c, err := client.New(server.URL, "tp_key")
	if err != nil {
		t.Fatal(err)
	}
	var versions []int64
	for event, err := range c.WalletEvents(t.Context(), uuid.New(), client.ListWalletEventsParams{FromVersion: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, event.Version)
	}
	if !slices.Equal(versions, []int64{3, 4, 5, 6}) {
		t.Errorf("got %v", versions)
	}
}

func TestPagesAreTurned(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		next := []uuid.UUID{uuid.New(), uuid.New(), {}}
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			say(w, http.StatusOK, map[string]any{"campaigns": []client.CampaignSummary{{Name: strconv.Itoa(2*n - 1)}, {Name: strconv.Itoa(2 * n)}}, "next_cursor": next[n-1]})
			return true
		}
		var names []string
		for got, err := range s.client().Campaigns(t.Context(), client.ListCampaignsParams{State: client.CampaignStateActive}) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, got.Name)
		}
		if !slices.Equal(names, []string{"1", "2", "3", "4", "5", "6"}) {
			t.Error(names)
		}
		for i, r := range s.seen() {
			if i > 0 && r.path != "/v1/campaigns?cursor="+next[i-1].String()+"&state=active" {
				t.Errorf("page %d: %s", i+1, r.path)
			}
		}
	})
}

func TestNoMorePagesAreReadThanAreWanted(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		cursor := uuid.NewString()
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 3 {
				refuseWith(w, http.StatusForbidden, client.CodeForbidden, "")
			} else {
				say(w, http.StatusOK, map[string]any{"purchases": []client.Purchase{{UserID: "a"}}, "next_cursor": cursor})
			}
			return true
		}
		var last error
		for _, last = range s.client().Purchases(t.Context(), "a", client.ListPurchasesParams{}) {
			break
		}
		if last != nil || len(s.seen()) != 1 {
			t.Errorf("%d requests: %v", len(s.seen()), last)
		}
		// A page that is its own next page.
		for _, last = range s.client().Purchases(t.Context(), "a", client.ListPurchasesParams{Cursor: cursor}) {
			if len(s.seen()) > 2 {
				break
			}
		}
		if last == nil || len(s.seen()) != 2 {
			t.Errorf("%d requests: %v", len(s.seen()), last)
		}
		refused := 0
		for _, last = range s.client().Purchases(t.Context(), "a", client.ListPurchasesParams{}) {
			refused++
		}
		if last == nil || refused != 1 || len(s.seen()) != 3 {
			t.Errorf("%d requests: %v", len(s.seen()), last)
		}
	})
}
