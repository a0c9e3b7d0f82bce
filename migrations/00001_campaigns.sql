-- +goose Up

-- The hot row: every purchase updates its counters. It is kept narrow, half of
-- each page stays free for HOT updates, no index names a counter, and no foreign
-- key points at it from a table that is written in crowds (share locks on this
-- row cost two thirds of the throughput; audit checks what the key would have).
CREATE TABLE campaigns (
    id                 uuid        PRIMARY KEY,
    name               text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    base_length        integer     NOT NULL CHECK (base_length BETWEEN 3 AND 1000),
    currency           text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    purchase_limit     integer     CHECK (purchase_limit >= 1),            -- positions per user; null: none
    state              text        NOT NULL DEFAULT 'pending'
                                   CHECK (state IN ('pending', 'active', 'drawing', 'completed', 'cancelled')),
    paused_at          timestamptz,                                        -- a flag on an active campaign
    sale_starts_at     timestamptz,
    sale_ends_at       timestamptz,
    policies           jsonb       NOT NULL,
    positions_total    integer     NOT NULL,
    positions_reserved integer     NOT NULL DEFAULT 0 CHECK (positions_reserved >= 0), -- held or reserved
    positions_sold     integer     NOT NULL DEFAULT 0 CHECK (positions_sold >= 0),
    execution_lock_id   uuid,                                              -- who draws
    execution_locked_at timestamptz,                                       -- since when; renewed while at work
    execution_version   bigint     NOT NULL DEFAULT 0,                     -- fencing: grows with every claim
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at       timestamptz,
    draw_started_at    timestamptz,
    draw_completed_at  timestamptz,

    CHECK (positions_total = base_length * (base_length + 1) / 2),
    CHECK (positions_reserved + positions_sold <= positions_total),
    CHECK (sale_ends_at > sale_starts_at),
    CHECK (paused_at IS NULL OR state = 'active'),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_at IS NULL)),
    CHECK (execution_lock_id IS NULL OR state = 'drawing'),
    CHECK ((state = 'completed') = (draw_completed_at IS NOT NULL)),
    CHECK (state NOT IN ('active', 'drawing', 'completed') OR published_at IS NOT NULL)
) WITH (fillfactor = 50);

-- Sweeps look for campaigns that are being drawn; there are few at a time.
CREATE INDEX campaigns_drawing ON campaigns (draw_started_at) WHERE state = 'drawing';

-- +goose StatementBegin
CREATE FUNCTION campaign_state_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = NEW.state
       OR (OLD.state, NEW.state) IN (('pending', 'active'), ('pending', 'cancelled'),
                                     ('active', 'drawing'), ('active', 'cancelled'),
                                     ('drawing', 'completed')) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'campaign %: no way from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'campaign_state_moves';
END $$;
-- +goose StatementEnd

-- OF state: an update of counters alone does not pay for it.
CREATE TRIGGER campaign_state_moves BEFORE UPDATE OF state ON campaigns
    FOR EACH ROW EXECUTE FUNCTION campaign_state_moves();

CREATE TABLE layers (
    campaign_id uuid    NOT NULL REFERENCES campaigns ON DELETE CASCADE,
    layer       integer NOT NULL CHECK (layer >= 1),
    price       bigint  NOT NULL CHECK (price > 0),                        -- minor units
    PRIMARY KEY (campaign_id, layer)
);

CREATE TABLE prizes (
    campaign_id    uuid    NOT NULL,
    number         integer NOT NULL CHECK (number >= 1),                   -- in layer order, then as given
    layer          integer NOT NULL,
    name           text    NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    winning_column integer CHECK (winning_column BETWEEN 1 AND layer),     -- null: not drawn, or not awarded
    PRIMARY KEY (campaign_id, number),
    UNIQUE (campaign_id, layer, winning_column),                           -- a position wins at most once
    FOREIGN KEY (campaign_id, layer) REFERENCES layers ON DELETE CASCADE
);

-- What a campaign bound itself to at publication.
CREATE TABLE commitments (
    campaign_id   uuid  PRIMARY KEY REFERENCES campaigns,
    rules         text  NOT NULL,                                          -- canonical JSON, the bytes that were hashed
    commitment    bytea NOT NULL CHECK (octet_length(commitment) = 32),
    sealed_secret bytea NOT NULL                                           -- encrypted with draw.secret_key
);

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $$;
-- +goose StatementEnd

CREATE TRIGGER commitments_are_immutable BEFORE UPDATE OR DELETE ON commitments
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE commitments, prizes, layers, campaigns;
DROP FUNCTION refuse_change, campaign_state_moves;
