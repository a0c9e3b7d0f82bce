package httpapi

import (
	"strings"

	"triprize/internal/platform/postgres"
)

// transactionsOf tells what the transactions of an operation are for, by its path. Jobs, holds and
// wallets have batches of their own, which say it themselves.
func transactionsOf(path string) postgres.Transaction {
	for _, of := range []struct {
		part string
		kind postgres.Transaction
	}{
		{"/refund", postgres.TxRefund}, {"/payment", postgres.TxPayment}, {"/draw", postgres.TxDraw}, {"/hold", postgres.TxHold},
		{"/wallets", postgres.TxWallet}, {"/transfers", postgres.TxWallet}, {"/webhook", postgres.TxWebhook}, {"/campaigns", postgres.TxCampaign},
	} {
		if strings.Contains(path, of.part) {
			return of.kind
		}
	}
	return postgres.TxOther
}
