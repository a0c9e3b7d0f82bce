-- loses: erasures
-- +goose Up

-- The erasures of users. When one is finished, only the HMAC of the id is left: the audit recognizes rows that have come back.
CREATE TABLE erasures (
    id          uuid        PRIMARY KEY,                                   -- its job's
    client      text,                                                      -- null: every client
    pseudonym   text,                                                      -- in the place of the id; null: it is finished, and nothing here leads from the hash to it
    fence       xid8        NOT NULL DEFAULT pg_current_xact_id(),         -- transactions that are older must end first
    begun_at    timestamptz,                                               -- nothing was open; null: it is not known yet
    at          int         NOT NULL DEFAULT 0,                            -- the table that the pass over all of them comes to next
    found       boolean     NOT NULL DEFAULT false,                        -- this pass has found rows: another one follows
    rows        jsonb       NOT NULL DEFAULT '{}',                         -- that are erased, by table
    hash        bytea       CHECK (octet_length(hash) = 32),               -- HMAC-SHA256 of the user id, under a key derived from draw.secret_key
    finished_at timestamptz,
    CHECK ((finished_at IS NULL) = (hash IS NULL) AND (finished_at IS NULL) = (pseudonym IS NOT NULL) AND (finished_at IS NULL OR begun_at IS NOT NULL))
);
CREATE INDEX erasures_hash ON erasures (hash);

-- The HMAC-SHA256 of a text under each key of the setting triprize.key: the inner and the outer pad of each, as hexadecimal digits.
-- +goose StatementBegin
CREATE FUNCTION erased_hashes(text text) RETURNS SETOF bytea LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT sha256(decode(split_part(key, ':', 2), 'hex') || sha256(decode(split_part(key, ':', 1), 'hex') || convert_to(text, 'UTF8')))
    FROM string_to_table(current_setting('triprize.key'), ',') AS key;
END;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION erased_hashes;
DROP TABLE erasures;
