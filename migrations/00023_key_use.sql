-- +goose Up

-- When a key was last used, to a minute or so; null: never, or before this column was there.
ALTER TABLE api_keys ADD COLUMN last_used_at timestamptz;

-- +goose Down
ALTER TABLE api_keys DROP COLUMN last_used_at;
