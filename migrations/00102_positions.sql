-- loses: held_times, holds, position_fills, positions
-- +goose Up

CREATE TABLE positions (
    campaign_id   uuid        NOT NULL,
    layer         integer     NOT NULL,
    col           integer     NOT NULL CHECK (col BETWEEN 1 AND 500500),
    rank          integer     NOT NULL,                                    -- secret and random; positions may have the same
    price         bigint      NOT NULL CHECK (price > 0),                  -- the layer's, fixed at publication
    state         text        NOT NULL DEFAULT 'available'
                              CHECK (state IN ('available', 'held', 'reserved', 'sold', 'blocked')),
    version       integer     NOT NULL DEFAULT 0,                          -- incremented with every change
    board_version bigint      NOT NULL DEFAULT 0, -- the campaign's at the last change. No index: every sale would write to it.
    user_id       text,
    hold_id       uuid,
    purchase_id   uuid,
    expires_at    timestamptz,                                             -- of a hold or reservation
    sold_at       timestamptz,
    block_reason  text        CHECK (char_length(block_reason) BETWEEN 1 AND 100),
    PRIMARY KEY (campaign_id, layer, col),

    CHECK ((state IN ('available', 'blocked')) = (user_id IS NULL)),
    CHECK ((state = 'held') = (hold_id IS NOT NULL)),
    CHECK ((state IN ('held', 'reserved')) = (expires_at IS NOT NULL)),
    CHECK ((state IN ('reserved', 'sold')) = (purchase_id IS NOT NULL)),
    CHECK ((state = 'sold') = (sold_at IS NOT NULL)),
    CHECK (state = 'blocked' OR block_reason IS NULL)
) WITH (fillfactor = 90);

-- "A random free position", of the campaign or of a layer, is the first free one by rank.
CREATE INDEX positions_free ON positions (campaign_id, rank) WHERE state = 'available';
CREATE INDEX positions_free_in_layer ON positions (campaign_id, layer, rank) WHERE state = 'available';
-- The positions of a user, for the purchase limit.
CREATE INDEX positions_of_user ON positions (campaign_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX positions_of_hold ON positions (hold_id) WHERE hold_id IS NOT NULL;

-- Progress of creating the positions of a large campaign before its publication, in steps. While
-- a row exists, the positions are not visible. The publishing transaction deletes it.
CREATE TABLE position_fills (
    campaign_id uuid    PRIMARY KEY REFERENCES campaigns,
    draft       bytea   CHECK (octet_length(draft) = 32), -- SHA-256 of the plan; null: positions of an older draft are being deleted
    made        integer NOT NULL CHECK (made >= 0)        -- positions, by layer and column
);

-- A hold reserves positions for one user until it expires, by the database's clock. It
-- ends at that time, even before a sweep releases it.
CREATE TABLE holds (
    id          uuid        PRIMARY KEY,
    campaign_id uuid        NOT NULL,                                      -- no foreign key: see campaigns
    user_id     text        NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    client      text        NOT NULL,                                      -- that created it, and gets its events
    positions   jsonb       NOT NULL,                                      -- [{layer, column, price}], also after its end
    currency    text        NOT NULL,                                      -- of these prices
    size        smallint    NOT NULL CHECK (size >= 1),
    state       text        NOT NULL DEFAULT 'active'
                            CHECK (state IN ('active', 'used', 'released', 'expired')),
    extensions  smallint    NOT NULL DEFAULT 0,                            -- how often it was extended
    expires_at  timestamptz NOT NULL,
    ends_by     timestamptz NOT NULL,                                      -- no extension goes beyond
    purchase_id uuid,                                                      -- that used it
    metadata    jsonb       CONSTRAINT holds_metadata CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    CHECK (jsonb_array_length(positions) = size),
    CHECK ((state = 'active') = (ended_at IS NULL)),
    CHECK ((state = 'used') = (purchase_id IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000); -- see jobs

-- The expired and the active holds of a user, and the due holds of a campaign.
CREATE INDEX holds_of_user ON holds (campaign_id, user_id, expires_at);
CREATE INDEX holds_active_of_user ON holds (campaign_id, user_id) WHERE state = 'active';
CREATE INDEX holds_active ON holds (campaign_id, expires_at) WHERE state = 'active';
-- For the sweep of expired holds.
CREATE INDEX holds_expiry ON holds (expires_at) WHERE state = 'active';
-- For the sweep of old records.
CREATE INDEX holds_ended ON holds (ended_at) WHERE ended_at IS NOT NULL;
-- Lists, newest first.
CREATE INDEX holds_of_campaign ON holds (campaign_id, id);
CREATE INDEX holds_of_client ON holds (campaign_id, client, id);
CREATE INDEX holds_by_user ON holds (user_id, id);

-- How long a user has recently occupied a position without buying it, summed over its holds
-- and unpaid reservations, to limit the total. Written when a hold ends without a purchase, or
-- a purchase without its payment; reset by the next one after a pause; deleted with ended holds.
CREATE TABLE held_times (
    campaign_id   uuid        NOT NULL,
    user_id       text        NOT NULL,
    layer         smallint    NOT NULL,
    col           integer     NOT NULL,
    held_seconds  float8      NOT NULL CHECK (held_seconds >= 0),
    ended_at      timestamptz NOT NULL,                                    -- the last of them
    pause_seconds float8      NOT NULL CHECK (pause_seconds >= 0),         -- before the next hold: the duration of the last one, unlimited if it expired; at most 10 s count
    PRIMARY KEY (campaign_id, user_id, layer, col)
) WITH (fillfactor = 80);

-- For the sweep of old records.
CREATE INDEX held_times_ended ON held_times (ended_at);

-- +goose Down
DROP TABLE held_times, holds, position_fills, positions;
