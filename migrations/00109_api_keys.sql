-- +goose Up

-- A client has one role: its keys share its idempotency keys and its jobs.
CREATE TABLE api_clients (
    name text PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 64),      -- the scope of idempotency keys
    role text NOT NULL CHECK (role IN ('operator', 'app')),
    UNIQUE (name, role)
);

CREATE TABLE api_keys (
    prefix       text        PRIMARY KEY,                                  -- the public part, for people to tell keys apart
    secret_hash  bytea       NOT NULL CHECK (octet_length(secret_hash) = 32), -- SHA-256 of the secret part
    role         text        NOT NULL,
    client       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,                                              -- to a minute or so; null: never
    revoked_at   timestamptz,
    CONSTRAINT api_keys_client_role FOREIGN KEY (client, role) REFERENCES api_clients (name, role)
);

-- The first key of a client decides its role.
-- +goose StatementBegin
CREATE FUNCTION api_keys_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO api_clients (name, role) VALUES (NEW.client, NEW.role) ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER api_keys_client BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION api_keys_client();

-- +goose Down
DROP TABLE api_keys, api_clients;
DROP FUNCTION api_keys_client;
