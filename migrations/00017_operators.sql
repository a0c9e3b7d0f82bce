-- +goose NO TRANSACTION
-- +goose Up

-- What operators say about money that waits for them. Sales go on meanwhile, so nothing
-- here reads a table while it is locked; each statement may be repeated.

-- What the provider has said when a payment began to wait, for operators; and how an
-- operator has ended a payment by hand, who and why.
ALTER TABLE payments
    ADD COLUMN IF NOT EXISTS trouble       text,
    ADD COLUMN IF NOT EXISTS settled_as    text,
    ADD COLUMN IF NOT EXISTS settled_by    text,
    ADD COLUMN IF NOT EXISTS settle_reason text;
ALTER TABLE payments DROP CONSTRAINT IF EXISTS payments_settled_by_hand;
ALTER TABLE payments ADD CONSTRAINT payments_settled_by_hand
    CHECK ((settled_as IS NULL) = (settled_by IS NULL) AND (settled_as IS NULL) = (settle_reason IS NULL)
           AND settled_as IN ('paid', 'unpaid') AND char_length(settle_reason) BETWEEN 1 AND 500) NOT VALID;
ALTER TABLE payments VALIDATE CONSTRAINT payments_settled_by_hand;

-- One more ending: an operator has found that nothing was paid.
ALTER TABLE payments DROP CONSTRAINT IF EXISTS payments_ending_check;
ALTER TABLE payments ADD CONSTRAINT payments_ending_check
    CHECK (ending IN ('expired', 'declined', 'refused', 'cancelled', 'campaign-cancelled', 'unpaid')) NOT VALID;
ALTER TABLE payments VALIDATE CONSTRAINT payments_ending_check;

-- The provider refuses to tell of a refund: time alone will not help.
ALTER TABLE refunds ADD COLUMN IF NOT EXISTS stuck boolean NOT NULL DEFAULT false;

-- Refunds at the provider that we have not made, as its events have told of them.
CREATE TABLE IF NOT EXISTS foreign_refunds (
    provider_id text        PRIMARY KEY,                                   -- re_… of the provider
    purchase_id uuid        NOT NULL,
    amount      bigint      NOT NULL,                                      -- minor units
    currency    text        NOT NULL,
    status      text,                                                      -- as told last
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What waits, for lists and gauges. What an attempt that broke off has left is not good
-- for anything.
DROP INDEX CONCURRENTLY IF EXISTS payments_waiting;
CREATE INDEX CONCURRENTLY payments_waiting ON payments (purchase_id) WHERE waiting_for IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS refunds_for_operator;
CREATE INDEX CONCURRENTLY refunds_for_operator ON refunds (id)
    WHERE method = 'card' AND (state IN ('failed', 'canceled') OR stuck AND state IN ('open', 'pending', 'requires_action'));

-- +goose Down
DROP TABLE IF EXISTS foreign_refunds;
DROP INDEX CONCURRENTLY IF EXISTS refunds_for_operator;
DROP INDEX CONCURRENTLY IF EXISTS payments_waiting;
ALTER TABLE refunds DROP COLUMN IF EXISTS stuck;
ALTER TABLE payments DROP CONSTRAINT IF EXISTS payments_ending_check;
ALTER TABLE payments ADD CONSTRAINT payments_ending_check
    CHECK (ending IN ('expired', 'declined', 'refused', 'cancelled', 'campaign-cancelled')) NOT VALID;
ALTER TABLE payments DROP COLUMN IF EXISTS trouble, DROP COLUMN IF EXISTS settled_as, DROP COLUMN IF EXISTS settled_by, DROP COLUMN IF EXISTS settle_reason;
