-- loses: console_persons, console_sessions
-- +goose Up

-- Operators who are signed in to the console. The cookie has a MAC beside the token, so that a row alone opens nothing.
CREATE TABLE console_sessions (
    token_hash bytea       PRIMARY KEY CHECK (octet_length(token_hash) = 32), -- SHA-256 of the random token
    key_prefix text        REFERENCES api_keys (prefix) ON DELETE CASCADE,  -- null: of a person
    operator   text        NOT NULL CHECK (char_length(operator) BETWEEN 1 AND 100), -- beside a key the name that was given, which proves nothing
    issuer     text        CHECK (char_length(issuer) BETWEEN 1 AND 255),  -- of the account; with the subject it is the person
    subject    text        CHECK (char_length(subject) BETWEEN 1 AND 255),
    email      text        CHECK (char_length(email) BETWEEN 1 AND 320),   -- as the provider says it
    roles      text[]      CHECK (roles <@ '{operator,approver,viewer}' AND cardinality(roles) > 0),
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp(),                -- when the provider has said the roles
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),                -- of the last page or command, to a minute
    CHECK ((key_prefix IS NULL) = (subject IS NOT NULL AND issuer IS NOT NULL AND roles IS NOT NULL))
);

-- The roles of persons, as the provider has said them last: also of those who have none any more.
CREATE TABLE console_persons (
    issuer     text        NOT NULL CHECK (char_length(issuer) BETWEEN 1 AND 255),
    subject    text        NOT NULL CHECK (char_length(subject) BETWEEN 1 AND 255),
    roles      text[]      NOT NULL CHECK (roles <@ '{operator,approver,viewer}'),
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (issuer, subject)
);

CREATE INDEX console_sessions_age ON console_sessions (created_at);

-- +goose Down
DROP TABLE console_persons, console_sessions;
