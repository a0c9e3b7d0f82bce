-- +goose Up

-- The board_version at which a position last changed, so that who has seen a board can
-- ask for what has changed since. There is no index: it would have to be written with
-- every sale, and all positions of a campaign are read together anyway. Null: it may
-- have changed before this column was there.
ALTER TABLE positions ADD COLUMN board_version bigint;
ALTER TABLE positions ALTER COLUMN board_version SET DEFAULT 0;            -- only for new rows

-- +goose Down
ALTER TABLE positions DROP COLUMN board_version;
