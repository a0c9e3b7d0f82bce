-- loses: console_sessions
-- +goose Up

-- Operators who are signed in to the console. The cookie has a MAC beside the token, so that a row alone opens nothing.
CREATE TABLE console_sessions (
    token_hash bytea       PRIMARY KEY CHECK (octet_length(token_hash) = 32), -- SHA-256 of the random token
    key_prefix text        NOT NULL REFERENCES api_keys (prefix) ON DELETE CASCADE,
    operator   text        NOT NULL CHECK (char_length(operator) BETWEEN 1 AND 100), -- the name that was given; it proves nothing
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()                 -- of the last page or command, to a minute
);
CREATE INDEX console_sessions_age ON console_sessions (created_at);

-- +goose Down
DROP TABLE console_sessions;
