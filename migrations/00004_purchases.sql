-- +goose Up

CREATE TABLE purchases (
    id                uuid        PRIMARY KEY,
    campaign_id       uuid        NOT NULL,                                -- no foreign key: see campaigns
    user_id           text        NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    job_id            uuid        NOT NULL UNIQUE,                         -- one job, one purchase
    amount            bigint      NOT NULL CHECK (amount > 0),             -- minor units
    currency          text        NOT NULL,
    payment_method    text        NOT NULL CHECK (payment_method IN ('external', 'wallet', 'card')),
    payment_reference text,
    state             text        NOT NULL
                                  CHECK (state IN ('pending', 'awaiting_action', 'completed', 'failed',
                                                   'cancelled', 'refunding', 'refunded')),
    failure           text,                                                -- a code of the HTTP contract
    nonce             bytea       NOT NULL CHECK (octet_length(nonce) = 16), -- hides the owner in the published list
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at      timestamptz,
    CHECK ((state = 'failed') = (failure IS NOT NULL))
);

CREATE INDEX purchases_of_user ON purchases (user_id, id);

CREATE TABLE purchase_items (
    purchase_id uuid    NOT NULL,
    layer       integer NOT NULL,
    col         integer NOT NULL,
    price       bigint  NOT NULL CHECK (price > 0),
    PRIMARY KEY (purchase_id, layer, col)
);

-- +goose Down
DROP TABLE purchase_items, purchases;
