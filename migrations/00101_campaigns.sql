-- loses: public_pages, campaign_metadata, prizes, layers, campaigns
-- +goose Up

-- The hot row: every purchase updates its counters. It is narrow, half of each page
-- stays free for HOT updates, no index has a counter, and no frequently written table
-- has a foreign key to it (share locks on this row cost two thirds of the throughput;
-- audit checks the references instead).
CREATE TABLE campaigns (
    id                  uuid        PRIMARY KEY,
    name                text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    base_length         integer     CHECK (base_length BETWEEN 3 AND 1000), -- of a triangle; null: another shape
    currency            text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    purchase_limit      integer     CHECK (purchase_limit >= 1),           -- positions per user; null: none
    state               text        NOT NULL DEFAULT 'pending'
                                    CHECK (state IN ('pending', 'active', 'drawing', 'completed', 'cancelled')),
    paused_at           timestamptz,                                       -- a flag on an active campaign
    sale_starts_at      timestamptz,
    sale_ends_at        timestamptz,
    draws_at            timestamptz, -- sale_ends_at, if the campaign is drawn then, sold out or not; null: it is drawn when sold out
    policies            jsonb       NOT NULL,
    positions_total     integer     NOT NULL CHECK (positions_total BETWEEN 1 AND 500500),
    positions_reserved  integer     NOT NULL DEFAULT 0 CHECK (positions_reserved >= 0), -- held or reserved
    positions_sold      integer     NOT NULL DEFAULT 0 CHECK (positions_sold >= 0),
    positions_blocked   integer     NOT NULL DEFAULT 0 CHECK (positions_blocked >= 0),
    board_version       bigint      NOT NULL DEFAULT 0,                    -- incremented with every change of a position
    closed_board        bigint, -- the board_version from which its free positions are unsold, or its winners known
    execution_lock_id   uuid,                                              -- the execution lock: a UUID of the attempt that draws
    execution_locked_by text        CHECK (char_length(execution_locked_by) <= 255), -- its name: host/pid/random, as in its log and in Redis
    execution_locked_at timestamptz,                                       -- last renewal
    execution_version   bigint      NOT NULL DEFAULT 0,                    -- fencing: incremented with every lease
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at        timestamptz,
    draw_started_at     timestamptz,
    draw_completed_at   timestamptz,
    cancelled_at        timestamptz,
    cancelled_by        text,
    cancel_reason       text        CHECK (char_length(cancel_reason) BETWEEN 1 AND 500),

    CHECK (positions_total = base_length * (base_length + 1) / 2),
    CHECK (positions_reserved + positions_sold + positions_blocked <= positions_total),
    CHECK (positions_blocked = 0 OR draws_at IS NOT NULL),                 -- otherwise the campaign would never sell out, nor be drawn
    CHECK (sale_ends_at > sale_starts_at),
    CHECK (paused_at IS NULL OR state = 'active'),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_at IS NULL)),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_by IS NULL)),
    CHECK (execution_lock_id IS NULL OR state = 'drawing'),
    CHECK ((state = 'completed') = (draw_completed_at IS NOT NULL)),
    CHECK (state NOT IN ('active', 'drawing', 'completed') OR published_at IS NOT NULL),
    CHECK ((state = 'cancelled') = (cancelled_at IS NOT NULL)),
    CHECK ((cancelled_at IS NULL) = (cancelled_by IS NULL)),
    CONSTRAINT campaigns_draw_at_their_end CHECK (draws_at IS NULL OR draws_at IS NOT DISTINCT FROM sale_ends_at)
) WITH (fillfactor = 50);

-- For the sweeps; there are few such campaigns at a time.
CREATE INDEX campaigns_drawing ON campaigns (draw_started_at) WHERE state = 'drawing';
CREATE INDEX campaigns_large ON campaigns (id) WHERE positions_total > 20000; -- for the sweep audit
CREATE INDEX campaigns_ending ON campaigns (sale_ends_at) WHERE state = 'active' AND sale_ends_at IS NOT NULL;
CREATE INDEX campaigns_to_draw ON campaigns (draws_at) WHERE state = 'active' AND draws_at IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION campaign_state_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = NEW.state
       OR (OLD.state, NEW.state) IN (('pending', 'active'), ('pending', 'cancelled'),
                                     ('active', 'drawing'), ('active', 'cancelled'),
                                     ('drawing', 'completed'), ('drawing', 'cancelled')) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'campaign %: no way from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation', CONSTRAINT = 'campaign_state_moves';
END $$;
-- +goose StatementEnd

-- OF state: updates of counters do not run the trigger.
CREATE TRIGGER campaign_state_moves BEFORE UPDATE OF state ON campaigns
    FOR EACH ROW EXECUTE FUNCTION campaign_state_moves();

-- +goose StatementBegin
CREATE FUNCTION draws_at_is_bound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'campaign % is published: when it is drawn does not change', NEW.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_at_is_bound';
END $$;
-- +goose StatementEnd
CREATE TRIGGER draws_at_is_bound BEFORE UPDATE OF draws_at ON campaigns
    FOR EACH ROW WHEN (OLD.state <> 'pending' AND NEW.draws_at IS DISTINCT FROM OLD.draws_at) EXECUTE FUNCTION draws_at_is_bound();

CREATE TABLE layers (
    campaign_id  uuid    NOT NULL REFERENCES campaigns ON DELETE CASCADE,
    layer        integer NOT NULL CHECK (layer BETWEEN 1 AND 1000),
    price        bigint  NOT NULL CHECK (price > 0),                       -- minor units
    positions    integer NOT NULL CHECK (positions BETWEEN 1 AND 500500),
    first_number integer NOT NULL CHECK (first_number BETWEEN 1 AND 500500), -- of its first position
    label        text    CHECK (char_length(label) BETWEEN 1 AND 100),
    aisles       integer[] NOT NULL DEFAULT '{}'                           -- sorted columns followed by an aisle
                         CHECK (cardinality(aisles) <= 100 AND 1 <= ALL (aisles) AND positions > ALL (aisles)),
    PRIMARY KEY (campaign_id, layer)
);

-- The number of a position, 1 … n over its campaign.
CREATE FUNCTION position_number(first_number integer, col integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN first_number + col - 1;
-- Its label. Postgres inlines both functions into the query.
CREATE FUNCTION position_label(label text, first_number integer, col integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN coalesce(label || ' ' || col::text, position_number(first_number, col)::text);

CREATE TABLE prizes (
    campaign_id    uuid    NOT NULL,
    number         integer NOT NULL CHECK (number >= 1),                   -- in layer order, then as given
    layer          integer NOT NULL,
    name           text    NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    winning_column integer CHECK (winning_column >= 1),                    -- null: not drawn, or not awarded
    PRIMARY KEY (campaign_id, number),
    UNIQUE (campaign_id, layer, winning_column),                           -- a position wins at most once
    FOREIGN KEY (campaign_id, layer) REFERENCES layers ON DELETE CASCADE
);

-- +goose StatementBegin
CREATE FUNCTION prizes_are_won_in_their_layer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM layers WHERE campaign_id = NEW.campaign_id AND layer = NEW.layer AND NEW.winning_column <= positions) THEN
        RAISE EXCEPTION 'campaign %: layer % has no column %', NEW.campaign_id, NEW.layer, NEW.winning_column
            USING ERRCODE = 'check_violation', CONSTRAINT = 'prizes_are_won_in_their_layer';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER prizes_are_won_in_their_layer BEFORE INSERT OR UPDATE OF winning_column, layer ON prizes
    FOR EACH ROW WHEN (NEW.winning_column IS NOT NULL) EXECUTE FUNCTION prizes_are_won_in_their_layer();

-- The metadata of a campaign; no row: none. A separate table, because every sale updates the
-- campaign's row. The limit is wider than that of the API (2 KiB of keys and values), because
-- JSON adds punctuation and escapes.
CREATE TABLE campaign_metadata (
    campaign_id uuid  PRIMARY KEY REFERENCES campaigns,
    metadata    jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608)
);

-- The campaigns that anybody can watch; no row: nobody can. For the same reason a separate table.
CREATE TABLE public_pages (
    campaign_id   uuid   PRIMARY KEY REFERENCES campaigns,
    embed_origins text[] NOT NULL CHECK (cardinality(embed_origins) <= 10) -- whose pages can frame it; empty: none
);

-- The trigger of append-only tables: one for rows and one for TRUNCATE, which runs no row trigger.
-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE public_pages, campaign_metadata, prizes, layers, campaigns;
DROP FUNCTION refuse_change, prizes_are_won_in_their_layer, position_label, position_number, draws_at_is_bound, campaign_state_moves;
