package worker

import (
	"context"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

// transactionsOf tells what the transactions of a kind of tasks are for.
func transactionsOf(kind string) postgres.Transaction {
	switch kind {
	case string(job.KindCampaignCancellation):
		return postgres.TxCampaign
	case string(job.KindEvent):
		return postgres.TxPayment
	case webhook.Kind, webhook.KindSlow:
		return postgres.TxWebhook
	}
	return postgres.Transaction(kind)
}

// named is the handler of a share, whose transactions say what they are for. The batches of shards say
// it themselves.
func named(s queue.Share) queue.Handler {
	kind, handle := transactionsOf(s.Kind), s.Handle
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		return handle(postgres.As(ctx, kind), task, redelivered)
	}
}
