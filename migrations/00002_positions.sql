-- +goose Up

CREATE TABLE positions (
    campaign_id uuid        NOT NULL,
    layer       integer     NOT NULL,
    col         integer     NOT NULL CHECK (col BETWEEN 1 AND layer),
    rank        integer     NOT NULL,                                      -- a secret random order over the campaign
    price       bigint      NOT NULL CHECK (price > 0),                    -- the layer's, fixed at publication
    state       text        NOT NULL DEFAULT 'available'
                            CHECK (state IN ('available', 'held', 'reserved', 'sold')),
    version     integer     NOT NULL DEFAULT 0,                            -- grows with every change
    user_id     text,
    purchase_id uuid,
    expires_at  timestamptz,                                               -- of a hold or reservation
    sold_at     timestamptz,
    PRIMARY KEY (campaign_id, layer, col),

    CHECK ((state = 'available') = (user_id IS NULL)),
    CHECK ((state IN ('held', 'reserved')) = (expires_at IS NOT NULL)),
    CHECK ((state IN ('reserved', 'sold')) = (purchase_id IS NOT NULL)),
    CHECK ((state = 'sold') = (sold_at IS NOT NULL))
) WITH (fillfactor = 90);

-- "A random free position", of the triangle or of a layer, is the first free one by rank.
CREATE UNIQUE INDEX positions_free ON positions (campaign_id, rank) WHERE state = 'available';
CREATE INDEX positions_free_in_layer ON positions (campaign_id, layer, rank) WHERE state = 'available';
-- What a user has, for the purchase limit.
CREATE INDEX positions_of_user ON positions (campaign_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX positions_expiry ON positions (expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
DROP TABLE positions;
