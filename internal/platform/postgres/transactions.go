package postgres

import "context"

// Transaction is the purpose of transactions: the label of their metrics.
type Transaction string

// The kinds of transactions.
const (
	TxAccept       Transaction = "accept" // of jobs, over HTTP
	TxPurchase     Transaction = "purchase"
	TxCancellation Transaction = "cancellation"
	TxDraw         Transaction = "draw"
	TxCampaign     Transaction = "campaign"
	TxHold         Transaction = "hold"
	TxWallet       Transaction = "wallet"
	TxPayment      Transaction = "payment"
	TxRefund       Transaction = "refund"
	TxWebhook      Transaction = "webhook"
	TxSweep        Transaction = "sweep"
	TxOther        Transaction = "other"
)

var transactions = []Transaction{TxAccept, TxPurchase, TxCancellation, TxDraw, TxCampaign, TxHold, TxWallet, TxPayment, TxRefund, TxWebhook, TxSweep, TxOther}

type transactionKey struct{}

// As returns a context whose transactions count as those of a kind.
func As(ctx context.Context, kind Transaction) context.Context {
	return context.WithValue(ctx, transactionKey{}, kind)
}
