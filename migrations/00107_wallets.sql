-- loses: authorizations, wallet_snapshots, wallet_events, ledger_entries, wallet_metadata, wallets
-- +goose Up

-- The sum of the wallet's events: commands lock this row, readers read it. No index
-- has a column that changes, and half of each page stays free, so that a movement is
-- a HOT update. No foreign key references it: share locks on a hot wallet would cost
-- more than the movement (audit checks the references instead).
CREATE TABLE wallets (
    id         uuid        PRIMARY KEY,
    owner_id   text        NOT NULL CHECK (char_length(owner_id) BETWEEN 1 AND 128),
    client     text        NOT NULL,                                       -- its owner, whose purchases it pays and which gets its events
    currency   text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    balance    bigint      NOT NULL DEFAULT 0 CHECK (balance BETWEEN 0 AND 9000000000000000), -- minor units
    held       bigint      NOT NULL DEFAULT 0 CHECK (held >= 0),           -- by active authorizations
    version    bigint      NOT NULL DEFAULT 0 CHECK (version >= 0),        -- of its last event
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (owner_id, currency, client),
    CHECK (held <= balance)                                                -- held money cannot be spent
) WITH (fillfactor = 50);

-- The metadata of a wallet; no row: none. See campaign_metadata.
CREATE TABLE wallet_metadata (
    wallet_id uuid  PRIMARY KEY,                                           -- no foreign key: see wallets
    metadata  jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608)
);

-- The ledger: one row per movement, with a debit side, which gives, and a credit side,
-- which gets. A side is a wallet or a system account. System accounts have no rows of
-- their own, so none is a hot row.
--   funding  external money: deposits come from it, withdrawals go to it
--   sales    the prices of sold positions
--   refunds  the money of cancelled purchases
-- Entries of the kinds authorize, void and expire are pending: they hold money and
-- release it. All others are posted: they move it.
CREATE TABLE ledger_entries (
    id               uuid        PRIMARY KEY,
    kind             text        NOT NULL
                                 CHECK (kind IN ('credit', 'debit', 'transfer', 'purchase', 'refund', 'authorize', 'capture', 'void', 'expire')),
    debit_wallet     uuid,                                                 -- no foreign keys: see wallets
    debit_account    text        CHECK (debit_account IN ('funding', 'sales', 'refunds')),
    credit_wallet    uuid,
    credit_account   text        CHECK (credit_account IN ('funding', 'sales', 'refunds')),
    amount           bigint      NOT NULL CHECK (amount BETWEEN 1 AND 9000000000000000), -- minor units
    currency         text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    scope            text        NOT NULL,                                 -- of the reference: a client, or '' for ours
    reference        text        NOT NULL CHECK (char_length(reference) BETWEEN 1 AND 200),
    description      text        CHECK (char_length(description) BETWEEN 1 AND 500),
    authorization_id uuid,
    purchase_id      uuid,                                                 -- the purchase that it pays or refunds, wholly or in part
    actor            text        NOT NULL CHECK (actor <> ''),             -- who requested it: role:client, and the user if one was signed in; or system
    metadata         jsonb       CONSTRAINT ledger_entries_metadata CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (scope, reference),                                             -- a reference is used once

    CHECK (num_nonnulls(debit_wallet, debit_account) = 1),
    CHECK (num_nonnulls(credit_wallet, credit_account) = 1),
    CHECK (num_nonnulls(debit_wallet, credit_wallet) >= 1),
    CHECK (debit_wallet <> credit_wallet),
    CHECK ((kind = 'transfer') = (debit_account IS NULL AND credit_account IS NULL)),
    CHECK (kind NOT IN ('credit', 'refund') OR debit_account = CASE kind WHEN 'credit' THEN 'funding' ELSE 'refunds' END),
    CHECK (kind IN ('credit', 'refund', 'transfer') OR credit_account = CASE kind WHEN 'purchase' THEN 'sales' ELSE 'funding' END),
    CHECK ((kind IN ('authorize', 'capture', 'void', 'expire')) = (authorization_id IS NOT NULL)),
    CHECK ((kind IN ('purchase', 'refund')) = (purchase_id IS NOT NULL))
);

-- The effect of an entry on a wallet: one row per wallet. The primary key allows one
-- event per version: of two writers that read the same version, one fails.
CREATE TABLE wallet_events (
    wallet_id     uuid        NOT NULL,
    version       bigint      NOT NULL CHECK (version >= 1),
    entry_id      uuid        NOT NULL,
    delta_balance bigint      NOT NULL,
    delta_held    bigint      NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (wallet_id, version),
    CHECK (delta_balance <> 0 OR delta_held <> 0)
);

-- The sum of a wallet's events up to a version, so that a command sums a bounded number
-- of them. It can be rebuilt from the events at any time.
CREATE TABLE wallet_snapshots (
    wallet_id uuid   NOT NULL,
    version   bigint NOT NULL CHECK (version >= 1),
    balance   bigint NOT NULL CHECK (balance >= 0),
    held      bigint NOT NULL CHECK (held BETWEEN 0 AND balance),
    PRIMARY KEY (wallet_id, version)
);

-- Money held until it is captured, voided or expired (database clock). It changes under
-- its wallet's lock.
CREATE TABLE authorizations (
    id          uuid        PRIMARY KEY,
    wallet_id   uuid        NOT NULL,                                      -- no foreign key: see wallets
    amount      bigint      NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000), -- minor units
    captured    bigint      NOT NULL DEFAULT 0 CHECK (captured BETWEEN 0 AND amount),
    state       text        NOT NULL DEFAULT 'active'
                            CHECK (state IN ('active', 'captured', 'voided', 'expired')),
    description text        CHECK (char_length(description) BETWEEN 1 AND 500),
    metadata    jsonb       CONSTRAINT authorizations_metadata CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK ((state = 'active') = (ended_at IS NULL)),
    CHECK ((state = 'captured') = (captured = amount)),
    CHECK (expires_at > created_at)
) WITH (fillfactor = 80);

-- The expired authorizations of a wallet that is short of money.
CREATE INDEX authorizations_active ON authorizations (wallet_id, expires_at) WHERE state = 'active';
-- For the sweep of expired authorizations.
CREATE INDEX authorizations_expiry ON authorizations (expires_at) WHERE state = 'active';

CREATE TRIGGER ledger_is_append_only BEFORE DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- An erased entry: nothing else can be made of one.
CREATE FUNCTION erased(e ledger_entries) RETURNS ledger_entries LANGUAGE sql IMMUTABLE
    RETURN (e.id, e.kind, e.debit_wallet, e.debit_account, e.credit_wallet, e.credit_account, e.amount, e.currency, e.scope,
            CASE e.scope WHEN '' THEN e.reference ELSE 'erased:' || e.id END, NULL, e.authorization_id, e.purchase_id, split_part(e.actor, '/', 1), NULL, e.created_at)::ledger_entries;
CREATE TRIGGER ledger_is_only_erased BEFORE UPDATE ON ledger_entries
    FOR EACH ROW WHEN (NEW IS DISTINCT FROM erased(OLD)) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_are_append_only BEFORE UPDATE OR DELETE ON wallet_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_is_never_emptied BEFORE TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_are_never_emptied BEFORE TRUNCATE ON wallet_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TRIGGER ledger_is_only_erased ON ledger_entries;
DROP FUNCTION erased;
DROP TABLE authorizations, wallet_snapshots, wallet_events, ledger_entries, wallet_metadata, wallets;
