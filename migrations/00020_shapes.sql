-- +goose Up

-- Campaigns of any shape. Sales go on meanwhile: no statement reads a large table but the
-- one of held_times, and none waits long for a lock.
SET LOCAL lock_timeout = '3s';

-- In the order of locks, the strongest first.
LOCK TABLE campaigns, layers, prizes, positions, held_times IN ACCESS EXCLUSIVE MODE;

-- Null: no triangle. Processes of the release before cannot read such a campaign, so they
-- decide nothing about it. The check on positions_total stays: it is one of triangles.
ALTER TABLE campaigns
    ALTER COLUMN base_length DROP NOT NULL,
    ADD CONSTRAINT campaigns_positions CHECK (positions_total BETWEEN 1 AND 500500);

-- Null positions and first_number: a layer of a triangle, written by the release before.
ALTER TABLE layers
    ADD COLUMN positions    integer CHECK (positions BETWEEN 1 AND 500500),
    ADD COLUMN first_number integer CHECK (first_number BETWEEN 1 AND 500500), -- of its first position
    ADD COLUMN label        text    CHECK (char_length(label) BETWEEN 1 AND 100),
    ADD CONSTRAINT layers_number CHECK (layer <= 1000),
    ADD CONSTRAINT layers_shape CHECK ((positions IS NULL) = (first_number IS NULL));

-- NOT VALID spares the scan: what is there fulfils the narrower check of before.
ALTER TABLE prizes
    DROP CONSTRAINT prizes_check,
    ADD CONSTRAINT prizes_winning_column CHECK (winning_column BETWEEN 1 AND 500500) NOT VALID;
-- A prize is won by a position of its layer, as before.
-- +goose StatementBegin
CREATE FUNCTION prizes_are_won_in_their_layer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM layers WHERE campaign_id = NEW.campaign_id AND layer = NEW.layer
                   AND NEW.winning_column <= coalesce(positions, layer)) THEN
        RAISE EXCEPTION 'campaign %: layer % has no column %', NEW.campaign_id, NEW.layer, NEW.winning_column
            USING ERRCODE = 'check_violation', CONSTRAINT = 'prizes_are_won_in_their_layer';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER prizes_are_won_in_their_layer BEFORE INSERT OR UPDATE OF winning_column, layer ON prizes
    FOR EACH ROW WHEN (NEW.winning_column IS NOT NULL) EXECUTE FUNCTION prizes_are_won_in_their_layer();
ALTER TABLE positions
    DROP CONSTRAINT positions_check,
    ADD CONSTRAINT positions_col CHECK (col BETWEEN 1 AND 500500) NOT VALID;

-- Columns beyond 32,767. It writes the table anew; only ended holds of late are in it.
ALTER TABLE held_times ALTER COLUMN col TYPE integer;

-- The number of a position, 1 … n over its campaign, from its layer's first_number.
CREATE FUNCTION position_number(first_number integer, layer integer, col integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN coalesce(first_number, layer * (layer - 1) / 2 + 1) + col - 1;
-- What people call it, from its layer's label. Both are simple enough to be put into the query.
CREATE FUNCTION position_label(label text, first_number integer, layer integer, col integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN coalesce(label || ' ' || col::text, position_number(first_number, layer, col)::text);

-- +goose Down
-- The release before knows triangles only.
-- +goose StatementBegin
DO $$ BEGIN
    IF EXISTS (SELECT FROM campaigns WHERE base_length IS NULL) THEN
        RAISE EXCEPTION 'there are campaigns that are no triangles: the release before cannot read them';
    END IF;
END $$;
-- +goose StatementEnd
DROP FUNCTION position_label, position_number;
DROP TRIGGER prizes_are_won_in_their_layer ON prizes;
DROP FUNCTION prizes_are_won_in_their_layer;
DELETE FROM held_times WHERE col > 32767; -- of no triangle
-- keeps: what does not fit was deleted
ALTER TABLE held_times ALTER COLUMN col TYPE smallint;
ALTER TABLE positions
    DROP CONSTRAINT positions_col,
    ADD CONSTRAINT positions_check CHECK (col BETWEEN 1 AND layer) NOT VALID;
ALTER TABLE prizes
    DROP CONSTRAINT prizes_winning_column,
    ADD CONSTRAINT prizes_check CHECK (winning_column BETWEEN 1 AND layer) NOT VALID;
ALTER TABLE layers
    DROP CONSTRAINT layers_number, DROP CONSTRAINT layers_shape,
    DROP COLUMN label;
-- keeps: every campaign is a triangle here, where both follow from the number of the layer
ALTER TABLE layers DROP COLUMN first_number, DROP COLUMN positions;
ALTER TABLE campaigns
    DROP CONSTRAINT campaigns_positions,
    ALTER COLUMN base_length SET NOT NULL;
