-- +goose NO TRANSACTION
-- +goose Up

-- Finds the job that cancels a campaign, for those who follow the campaign until all is
-- given back. There are few of them among many jobs, which go on being written meanwhile.
-- What an attempt that broke off has left is not good for anything.
DROP INDEX CONCURRENTLY IF EXISTS jobs_campaign_cancellations;
CREATE INDEX CONCURRENTLY jobs_campaign_cancellations ON jobs (campaign_id) WHERE kind = 'campaign-cancellation';

ALTER TABLE purchases VALIDATE CONSTRAINT purchases_failed_with_failure;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_failure_of;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_cancelled_at;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_cancellation_of;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_completed_at;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_refunded_by_card;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_campaign_cancellations;
