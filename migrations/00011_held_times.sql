-- +goose Up

-- How long a user has held a position lately, in all its holds of it together: what
-- bounds that time, however it is split. Written when a hold ends without a purchase,
-- reset by the next hold after a rest, deleted with ended holds.
CREATE TABLE held_times (
    campaign_id   uuid        NOT NULL,
    user_id       text        NOT NULL,
    layer         smallint    NOT NULL,
    col           smallint    NOT NULL,
    held_seconds  float8      NOT NULL CHECK (held_seconds >= 0),
    ended_at      timestamptz NOT NULL,                                    -- the last of these holds
    pause_seconds float8      NOT NULL CHECK (pause_seconds >= 0),         -- before the next one: as long as the last was, or without end if it expired; holds.cool_down at most
    PRIMARY KEY (campaign_id, user_id, layer, col)
) WITH (fillfactor = 80);

-- What the retention sweep looks for.
CREATE INDEX held_times_ended ON held_times (ended_at);

-- The latest moment to which a hold can be extended; without one for holds that are
-- older than this column.
ALTER TABLE holds ADD COLUMN ends_by timestamptz;

-- +goose Down
ALTER TABLE holds DROP COLUMN ends_by;
DROP TABLE held_times;
