-- loses: purchase_items, purchases
-- +goose Up

CREATE TABLE purchases (
    id                uuid        PRIMARY KEY,                             -- its job's: a job has at most one purchase
    campaign_id       uuid        NOT NULL,                                -- no foreign key: see campaigns
    user_id           text        NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    client            text        NOT NULL,                                -- that created it, and gets its events
    amount            bigint      NOT NULL CHECK (amount > 0),             -- minor units
    currency          text        NOT NULL,
    payment_method    text        NOT NULL CHECK (payment_method IN ('external', 'wallet', 'card')),
    payment_reference text,
    state             text        NOT NULL
                                  CHECK (state IN ('pending', 'awaiting_action', 'completed', 'failed',
                                                   'cancelled', 'refunding', 'refunded')),
    failure           text,                                                -- a code of the HTTP contract
    nonce             bytea       CHECK (octet_length(nonce) = 16),        -- conceals the owner in the published list; null: the user is erased
    metadata          jsonb       CONSTRAINT purchases_metadata CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608),
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at      timestamptz,
    cancelled_at      timestamptz,
    cancelled_by      text,                                                -- role:client, and the user if one was signed in
    cancel_reason     text        CHECK (char_length(cancel_reason) <= 500),
    partial_cancellations jsonb   CHECK (jsonb_typeof(partial_cancellations) = 'array'), -- [{job_id, positions, amount, by, reason, at}]; null: none

    -- A failed or cancelled purchase may be refunded later, and keeps its reason.
    CONSTRAINT purchases_failed_with_failure CHECK (state <> 'failed' OR failure IS NOT NULL),
    CONSTRAINT purchases_failure_of CHECK (failure IS NULL OR state IN ('failed', 'refunding', 'refunded')),
    CONSTRAINT purchases_cancelled_at CHECK (state <> 'cancelled' OR cancelled_at IS NOT NULL),
    CONSTRAINT purchases_cancellation_of CHECK (cancelled_at IS NULL OR state IN ('cancelled', 'refunding', 'refunded')),
    CONSTRAINT purchases_completed_at CHECK (state <> 'completed' OR completed_at IS NOT NULL),
    CONSTRAINT purchases_refunded_by_card CHECK (payment_method = 'card' OR state NOT IN ('refunding', 'refunded')),
    CHECK ((cancelled_at IS NULL) = (cancelled_by IS NULL))
);

-- Lists, newest first.
CREATE INDEX purchases_of_user ON purchases (user_id, id);
CREATE INDEX purchases_of_campaign ON purchases (campaign_id, id);
CREATE INDEX purchases_of_client ON purchases (campaign_id, client, id);
CREATE INDEX purchases_not_completed ON purchases (campaign_id, state, id) WHERE state <> 'completed';
-- Purchases whose card may still be declined.
CREATE INDEX purchases_unpaid ON purchases (client, user_id) WHERE state IN ('pending', 'awaiting_action');
CREATE INDEX purchases_of_reference ON purchases (payment_reference, id) WHERE payment_reference IS NOT NULL;

-- The positions that a purchase has, or had when it ended, without partially cancelled ones.
CREATE TABLE purchase_items (
    purchase_id uuid    NOT NULL,
    layer       integer NOT NULL,
    col         integer NOT NULL,
    price       bigint  NOT NULL CHECK (price > 0),
    PRIMARY KEY (purchase_id, layer, col)
);

-- A card purchase is reserved first, and sold when it is paid.
-- +goose StatementBegin
CREATE FUNCTION refuse_unpaid_card() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'purchase %: paid by card, and % from the start', NEW.id, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'card_purchases_begin_pending';
END $$;
-- +goose StatementEnd

CREATE TRIGGER card_purchases_begin_pending BEFORE INSERT ON purchases
    FOR EACH ROW WHEN (NEW.payment_method = 'card' AND NEW.state <> 'pending') EXECUTE FUNCTION refuse_unpaid_card();

-- +goose Down
DROP TABLE purchase_items, purchases;
DROP FUNCTION refuse_unpaid_card;
