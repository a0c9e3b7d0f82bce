package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Fields are a JSON object.
type Fields map[string]any

// WalletView is what the tests read of a wallet.
type WalletView struct {
	ID                       uuid.UUID
	OwnerID                  string `json:"owner_id"`
	Currency                 string
	Balance, Held, Available int64
	Version                  int64
}

// As reads the body of an answer.
func As[T any](t *testing.T, a Answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Errorf("%v: %s: %v", a, a.Body, err)
	}
	return v
}

// Execute sends a command as the app, with headers in pairs and a fresh key unless one is among them.
func (s *System) Execute(path string, body any, header ...string) Answer {
	return s.ExecuteAt(0, path, body, header...)
}

// ExecuteAt is Execute at the n-th api.
func (s *System) ExecuteAt(api int, path string, body any, header ...string) Answer {
	named := map[string]string{"Idempotency-Key": uuid.NewString()}
	for pair := range slices.Chunk(header, 2) {
		named[pair[0]] = pair[1]
	}
	return s.Do(api, s.App, http.MethodPost, path, named, body)
}

// ExecuteUntilDone is ExecuteAt that repeats a command, with its key, as long as it
// is told to: a wallet may be busy for longer than commands wait.
func (s *System) ExecuteUntilDone(api int, path string, body any) Answer {
	for key := uuid.NewString(); ; {
		if a := s.ExecuteAt(api, path, body, "Idempotency-Key", key); a.Status != http.StatusServiceUnavailable {
			return a
		}
	}
}

// Read reads as the app.
func (s *System) Read(path string) Answer { return s.Do(0, s.App, http.MethodGet, path, nil, nil) }

// Wallet opens a wallet in JPY over HTTP and returns its path.
func (s *System) Wallet(owner string, balance int64) string {
	s.T.Helper()
	a := s.Execute("/v1/wallets", Fields{"owner_id": owner, "currency": "JPY", "initial_balance": balance})
	if a.Status != http.StatusCreated {
		s.T.Fatalf("open: %v %s", a, a.Body)
	}
	return "/v1/wallets/" + a.ID.String()
}

// ExpectWallet wants a wallet to have so much, of which so much is held.
func (s *System) ExpectWallet(path string, balance, held int64) (w WalletView) {
	s.T.Helper()
	a := s.Read(path)
	w = As[WalletView](s.T, a)
	if w.Balance != balance || w.Held != held || w.Available != balance-held || a.Header.Get("ETag") != fmt.Sprintf(`"%d"`, w.Version) {
		s.T.Errorf("%+v, ETag %s; want %d, held %d", w, a.Header.Get("ETag"), balance, held)
	}
	return w
}

// WalletID returns the identifier in a wallet's path.
func WalletID(path string) string { return strings.TrimPrefix(path, "/v1/wallets/") }
