package payprovider

import (
	"time"

	"triprize/internal/domain/money"
)

// InstallationKey is where what we make at the provider has the id of our installation in
// its metadata: others may use the account, too.
const InstallationKey = "installation"

// The categories of balance transactions that are about payments. All others are about the
// account: fees, payouts and such.
const (
	CategoryCharge                 = "charge"
	CategoryChargeFailure          = "charge_failure" // a charge that had succeeded
	CategoryPartialCaptureReversal = "partial_capture_reversal"
	CategoryRefund                 = "refund"
	CategoryRefundFailure          = "refund_failure"
	CategoryDispute                = "dispute"
	CategoryDisputeReversal        = "dispute_reversal"
)

// BalanceTransaction is one movement of the account's balance. Amounts are signed: what
// leaves the balance is negative.
type BalanceTransaction struct {
	ID           string
	Type         string // in the provider's words
	Category     string // the same for accounting: one of those above, or another
	Known        bool   // the category is one that the provider's API has in our release
	Amount       money.Amount
	Currency     string // of the balance, ISO 4217, capitals
	Fee          money.Amount
	Net          money.Amount
	ExchangeRate *string // decimal; nil: the source has the currency of the balance
	CreatedAt    time.Time
	AvailableOn  time.Time
	Source       Source
}

// Source is what a balance transaction is about, in the currency in which it was made. Of
// what is neither charge, refund nor dispute only the id is known.
type Source struct {
	ID       string
	IntentID string
	Amount   money.Amount // of a charge: captured
	Currency string       // ISO 4217, capitals
	Status   string
	Metadata map[string]string
}
