package wallets

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// Wallet is the document of a wallet.
type Wallet struct {
	ID        uuid.UUID `json:"id"`
	OwnerID   string    `json:"owner_id"`
	Currency  string    `json:"currency"`
	Balance   int64     `json:"balance"` // minor units, as all amounts
	Held      int64     `json:"held"`
	Available int64     `json:"available"`
	Version   int64     `json:"version"`
}

// WalletOf returns the document of a wallet.
func WalletOf(w wallet.Wallet) Wallet {
	return Wallet{ID: w.ID, OwnerID: w.Owner.ID, Currency: w.Currency, Balance: w.Balance, Held: w.Held, Available: w.Available(), Version: w.Version}
}

// Moved is the document of a transfer.
type Moved struct {
	ID          uuid.UUID `json:"id"`
	From        uuid.UUID `json:"from"`
	To          uuid.UUID `json:"to"`
	Amount      int64     `json:"amount"`
	Currency    string    `json:"currency"`
	Description string    `json:"description"`
	Reference   string    `json:"reference"` // its id, if the caller gave none
	CreatedAt   time.Time `json:"created_at"`
}

func transferOf(e wallet.Entry) Moved {
	return Moved{ID: e.ID, From: e.Debit.Wallet, To: e.Credit.Wallet, Amount: e.Amount, Currency: e.Currency,
		Description: e.Description, Reference: e.Reference.Text, CreatedAt: e.CreatedAt}
}

// Authorization is the document of an authorization.
type Authorization struct {
	ID          uuid.UUID                 `json:"id"`
	WalletID    uuid.UUID                 `json:"wallet_id"`
	Amount      int64                     `json:"amount"`
	Captured    int64                     `json:"captured"`
	State       wallet.AuthorizationState `json:"state"`
	Description string                    `json:"description"`
	ExpiresAt   time.Time                 `json:"expires_at"`
	CreatedAt   time.Time                 `json:"created_at"`
}

// AuthorizationOf returns the document of an authorization.
func AuthorizationOf(a wallet.Authorization) Authorization {
	return Authorization{ID: a.ID, WalletID: a.WalletID, Amount: a.Amount, Captured: a.Captured, State: a.State,
		Description: a.Description, ExpiresAt: a.ExpiresAt, CreatedAt: a.CreatedAt}
}

// answer is a document, or the refusal.
func answer(status int, body any, err error) job.Answer {
	if err != nil {
		return job.Answer{Refusal: err}
	}
	return job.Answer{Status: status, Body: body}
}

// wallet answers with a wallet as it is after the command, not after the crowd.
func (s *session) wallet(status int, id uuid.UUID, err error) job.Answer {
	if err != nil {
		return job.Answer{Refusal: err}
	}
	w, err := s.book.Wallet(id)
	return answer(status, WalletOf(w), err)
}
