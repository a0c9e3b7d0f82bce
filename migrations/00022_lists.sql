-- +goose NO TRANSACTION
-- +goose Up

-- What lists are read by, newest first: every index ends with id. Sales go on while they
-- are built. What an attempt that broke off has left is not good for anything.

-- Each waits for the transactions that are older than it: a dump, an audit. Nobody waits for
-- it meanwhile, and whoever gave up would begin with all of them again.
SET lock_timeout = 0;

-- None of these names a column that changes, so settling a job stays a HOT update (00003).
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_client;
CREATE INDEX CONCURRENTLY jobs_of_client ON jobs (client, id);
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_campaign;
CREATE INDEX CONCURRENTLY jobs_of_campaign ON jobs (campaign_id, id) WHERE campaign_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_user;
CREATE INDEX CONCURRENTLY jobs_of_user ON jobs (user_id, id) WHERE user_id IS NOT NULL;
-- The kinds that no crowd makes: see frequent in store/job, which must say the same.
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_kind;
CREATE INDEX CONCURRENTLY jobs_of_kind ON jobs (kind, id)
    WHERE kind NOT IN ('purchase', 'cancellation', 'hold-create', 'hold-extend', 'wallet-open', 'wallet-credit', 'wallet-debit', 'transfer-create',
                       'authorization-create', 'authorization-capture', 'authorization-void');

DROP INDEX CONCURRENTLY IF EXISTS purchases_of_campaign;
CREATE INDEX CONCURRENTLY purchases_of_campaign ON purchases (campaign_id, id);
DROP INDEX CONCURRENTLY IF EXISTS purchases_not_completed;
CREATE INDEX CONCURRENTLY purchases_not_completed ON purchases (campaign_id, state, id) WHERE state <> 'completed';
DROP INDEX CONCURRENTLY IF EXISTS purchases_of_reference;
CREATE INDEX CONCURRENTLY purchases_of_reference ON purchases (payment_reference, id) WHERE payment_reference IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS holds_of_campaign;
CREATE INDEX CONCURRENTLY holds_of_campaign ON holds (campaign_id, id);
DROP INDEX CONCURRENTLY IF EXISTS holds_by_user;
CREATE INDEX CONCURRENTLY holds_by_user ON holds (user_id, id);
RESET lock_timeout;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS holds_by_user;
DROP INDEX CONCURRENTLY IF EXISTS holds_of_campaign;
DROP INDEX CONCURRENTLY IF EXISTS purchases_of_reference;
DROP INDEX CONCURRENTLY IF EXISTS purchases_not_completed;
DROP INDEX CONCURRENTLY IF EXISTS purchases_of_campaign;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_kind;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_user;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_campaign;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_client;
