-- loses: api_keys, api_clients
-- +goose Up

-- A client has one role: its API keys share idempotency keys and jobs.
CREATE TABLE api_clients (
    name text PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 64),      -- the scope of idempotency keys
    role text NOT NULL CHECK (role IN ('operator', 'viewer', 'app')),
    UNIQUE (name, role)
);

CREATE TABLE api_keys (
    prefix       text        PRIMARY KEY,                                  -- the public part, which identifies the key
    secret_hash  bytea       NOT NULL CHECK (octet_length(secret_hash) = 32), -- SHA-256 of the secret part
    role         text        NOT NULL,
    client       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,                                              -- accurate to about a minute; null: never
    revoked_at   timestamptz,
    CONSTRAINT api_keys_client_role FOREIGN KEY (client, role) REFERENCES api_clients (name, role)
);

-- The first key of a client sets its role.
-- +goose StatementBegin
CREATE FUNCTION api_keys_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO api_clients (name, role) VALUES (NEW.client, NEW.role) ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER api_keys_client BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION api_keys_client();

-- The fleet's database role must not create operators. Only owners of the table may, who could also drop these
-- triggers. Postgres uses the same rule (pg_has_role: superusers, and roles that inherit the owner's
-- privileges).
-- +goose StatementBegin
CREATE FUNCTION owners_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RAISE EXCEPTION 'only the owner of the table % may do this', TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege', HINT = 'Connect as the role that runs triprize migrate.';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER api_clients_are_the_owners BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON api_clients
    FOR EACH STATEMENT EXECUTE FUNCTION owners_only();
CREATE TRIGGER api_keys_are_the_owners BEFORE INSERT OR DELETE OR TRUNCATE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION owners_only();
-- The fleet may record uses and revoke keys, irrevocably. AFTER: no later trigger changes the row.
CREATE TRIGGER api_keys_are_changed_by_owners AFTER UPDATE ON api_keys
    FOR EACH ROW WHEN (to_jsonb(NEW) - '{last_used_at,revoked_at}'::text[] IS DISTINCT FROM to_jsonb(OLD) - '{last_used_at,revoked_at}'::text[]
        OR OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    EXECUTE FUNCTION owners_only();
CREATE TRIGGER versions_are_the_owners BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON goose_db_version
    FOR EACH STATEMENT EXECUTE FUNCTION owners_only();

-- +goose Down
DROP TRIGGER versions_are_the_owners ON goose_db_version;
DROP TABLE api_keys, api_clients;
DROP FUNCTION api_keys_client, owners_only;
