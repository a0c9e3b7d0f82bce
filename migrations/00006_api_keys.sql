-- +goose Up

CREATE TABLE api_keys (
    prefix      text        PRIMARY KEY,                                   -- the public part, for people to tell keys apart
    secret_hash bytea       NOT NULL CHECK (octet_length(secret_hash) = 32), -- SHA-256 of the secret part
    role        text        NOT NULL CHECK (role IN ('operator', 'app')),
    client      text        NOT NULL CHECK (char_length(client) BETWEEN 1 AND 64), -- the scope of idempotency keys
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at  timestamptz
);

-- +goose Down
DROP TABLE api_keys;
