-- loses: payment_discrepancies, balance_transactions, reconciled_days, installation
-- +goose Up

-- The id of this installation, in the metadata of everything that it creates at the provider. A copy
-- of the database that runs beside the original needs another id. The first payment inserts the row.
CREATE TABLE installation (
    one        boolean     PRIMARY KEY DEFAULT true CHECK (one),
    id         uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The days (UTC) whose balance transactions were listed, and the progress of those that are being
-- listed. Every write compares the version.
CREATE TABLE reconciled_days (
    day          date        PRIMARY KEY,
    version      bigint      NOT NULL DEFAULT 0,                           -- fencing: incremented with every lease
    lease_until  timestamptz NOT NULL,
    listed_until timestamptz NOT NULL,                                     -- transactions created before it are stored
    done_at      timestamptz
);

CREATE INDEX reconciled_days_open ON reconciled_days (day) WHERE done_at IS NULL;

-- The balance transactions of our account at the provider, without payments of others.
CREATE TABLE balance_transactions (
    id                 text        PRIMARY KEY,                            -- txn_… of the provider
    day                date        NOT NULL,                               -- UTC, of created_at
    type               text        NOT NULL,
    reporting_category text        NOT NULL,
    known              boolean     NOT NULL,                               -- whether this release knows the category
    amount             bigint      NOT NULL,                               -- minor units of currency, negative: it leaves the balance
    currency           text        NOT NULL,                               -- of the balance
    fee                bigint      NOT NULL,
    net                bigint      NOT NULL,
    exchange_rate      numeric,                                            -- null: source_currency is currency
    created_at         timestamptz NOT NULL,                               -- by the provider's clock
    available_on       timestamptz NOT NULL,
    source_id          text,                                               -- ch_…, re_…, du_…, po_…
    intent_id          text,                                               -- of the source
    purchase_id        uuid,                                               -- in the source's metadata
    source_amount      bigint,                                             -- of a charge, refund or dispute, in its currency
    source_currency    text,
    source_status      text                                                -- at the time of the listing
);

CREATE INDEX balance_transactions_of_day ON balance_transactions (day);
CREATE INDEX balance_transactions_of_intent ON balance_transactions (intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX balance_transactions_of_source ON balance_transactions (source_id) WHERE source_id IS NOT NULL;

-- Discrepancies between the provider's balance and our payments. An object has one row per kind.
CREATE TABLE payment_discrepancies (
    id             uuid        PRIMARY KEY,
    kind           text        NOT NULL CHECK (kind IN ('unknown-here', 'unknown-there', 'differs', 'unknown-category')),
    object_id      text        NOT NULL,                                   -- pi_…, re_… or du_… of the provider; the category
    transaction_id text,                                                   -- txn_… that shows it; null: found by an event or in our own rows
    purchase_id    uuid,
    here_amount    bigint,                                                 -- minor units; null: nothing is known
    here_currency  text,
    there_amount   bigint,
    there_currency text,
    detail         text        NOT NULL,
    found_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at      timestamptz,                                            -- it no longer exists
    explained_by   text,
    explanation    text        CHECK (char_length(explanation) BETWEEN 1 AND 500),
    explained_at   timestamptz,
    version        bigint      NOT NULL DEFAULT 0,                         -- incremented when its amounts change
    UNIQUE (kind, object_id),
    CHECK ((explained_by IS NULL) = (explanation IS NULL) AND (explained_by IS NULL) = (explained_at IS NULL))
);

CREATE INDEX payment_discrepancies_open ON payment_discrepancies (id) WHERE closed_at IS NULL AND explained_at IS NULL; -- lists and gauges
CREATE INDEX payment_discrepancies_standing ON payment_discrepancies (id) WHERE closed_at IS NULL;                      -- that may be closed
CREATE INDEX payment_discrepancies_found ON payment_discrepancies (found_at);                                           -- for their retention

-- Our side of a day.
CREATE INDEX payments_received ON payments (finished_at) WHERE received > 0;
CREATE INDEX refunds_succeeded ON refunds (finished_at) WHERE method = 'card' AND state = 'succeeded';

-- +goose Down
DROP INDEX refunds_succeeded, payments_received;
DROP TABLE payment_discrepancies, balance_transactions, reconciled_days, installation;
