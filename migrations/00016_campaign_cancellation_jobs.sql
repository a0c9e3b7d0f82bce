-- +goose NO TRANSACTION
-- +goose Up

-- Finds the job that cancels a campaign, for those who follow the campaign until all is
-- given back. There are few of them among many jobs, which go on being written meanwhile.
-- What an attempt that broke off has left is not good for anything.
DROP INDEX CONCURRENTLY IF EXISTS jobs_campaign_cancellations;
CREATE INDEX CONCURRENTLY jobs_campaign_cancellations ON jobs (campaign_id) WHERE kind = 'campaign-cancellation';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_campaign_cancellations;
