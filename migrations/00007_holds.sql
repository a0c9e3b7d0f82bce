-- +goose Up

-- A hold keeps positions for one user until it expires, by the database's clock.
-- One whose time is over is over, whether a sweep has tidied it up or not.
CREATE TABLE holds (
    id          uuid        PRIMARY KEY,
    campaign_id uuid        NOT NULL,                                      -- no foreign key: see campaigns
    user_id     text        NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    positions   jsonb       NOT NULL,                                      -- [{layer, column, price}], also when it is over
    size        smallint    NOT NULL CHECK (size >= 1),
    state       text        NOT NULL DEFAULT 'active'
                            CHECK (state IN ('active', 'used', 'released', 'expired')),
    extensions  smallint    NOT NULL DEFAULT 0,                            -- how often it was extended
    expires_at  timestamptz NOT NULL,
    purchase_id uuid,                                                      -- that used it
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    CHECK (jsonb_array_length(positions) = size),
    CHECK ((state = 'active') = (ended_at IS NULL)),
    CHECK ((state = 'used') = (purchase_id IS NOT NULL))
) WITH (fillfactor = 80);

-- What a user let expire a moment ago, what it holds, and what is due in a campaign.
CREATE INDEX holds_of_user ON holds (campaign_id, user_id, expires_at);
CREATE INDEX holds_active_of_user ON holds (campaign_id, user_id) WHERE state = 'active';
CREATE INDEX holds_active ON holds (campaign_id, expires_at) WHERE state = 'active';
-- What the sweep looks for.
CREATE INDEX holds_expiry ON holds (expires_at) WHERE state = 'active';
-- What the retention sweep looks for.
CREATE INDEX holds_ended ON holds (ended_at) WHERE ended_at IS NOT NULL;

ALTER TABLE positions ADD COLUMN hold_id uuid, ADD CHECK ((state = 'held') = (hold_id IS NOT NULL));
CREATE INDEX positions_of_hold ON positions (hold_id) WHERE hold_id IS NOT NULL;

-- Grows with every change of a position, so that those who follow a campaign see
-- that its board has changed also when its counts are the same again.
ALTER TABLE campaigns ADD COLUMN board_version bigint NOT NULL DEFAULT 0;

-- Who took a purchase back, when and why.
ALTER TABLE purchases
    ADD COLUMN cancelled_at  timestamptz,
    ADD COLUMN cancelled_by  text,                                         -- role:client, and the user if one was signed in
    ADD COLUMN cancel_reason text CHECK (char_length(cancel_reason) <= 500),
    ADD CHECK ((state = 'cancelled') = (cancelled_at IS NOT NULL)),
    ADD CHECK ((cancelled_at IS NULL) = (cancelled_by IS NULL));

-- +goose Down
ALTER TABLE purchases DROP COLUMN cancelled_at, DROP COLUMN cancelled_by, DROP COLUMN cancel_reason;
ALTER TABLE campaigns DROP COLUMN board_version;
ALTER TABLE positions DROP COLUMN hold_id;
DROP TABLE holds;
