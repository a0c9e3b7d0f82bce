-- +goose Up

LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE; -- no key is made meanwhile; reading goes on

-- A client has one role: its keys share its idempotency keys and its jobs.
CREATE TABLE api_clients (
    name text PRIMARY KEY,
    role text NOT NULL CHECK (role IN ('operator', 'app')),
    UNIQUE (name, role)
);

-- Of a client that has keys of both roles, the latest key that still works decides.
-- Its other keys keep working until they are revoked: the constraint is only for new
-- keys (NOT VALID), because an upgrade must not lock anybody out.
INSERT INTO api_clients (name, role)
SELECT DISTINCT ON (client) client, role FROM api_keys ORDER BY client, revoked_at IS NOT NULL, created_at DESC;

ALTER TABLE api_keys ADD CONSTRAINT api_keys_client_role FOREIGN KEY (client, role) REFERENCES api_clients (name, role) NOT VALID;

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
DROP TRIGGER api_keys_client ON api_keys;
DROP FUNCTION api_keys_client();
ALTER TABLE api_keys DROP CONSTRAINT api_keys_client_role;
DROP TABLE api_clients;
