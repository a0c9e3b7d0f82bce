-- loses: audit_texts, audit_trail, audit_seals
-- +goose Up

-- Each seal is a hash over the seal before it and the rows that it covers: a row that is changed or deleted later does
-- not fit it any more.
CREATE TABLE audit_seals (
    seal      bigint      PRIMARY KEY CHECK (seal > 0),                    -- without gaps
    id        uuid        NOT NULL UNIQUE,                                 -- for the sweep audit, which walks over ids
    previous  bytea       NOT NULL CHECK (octet_length(previous) = 32),    -- hash of the seal before; of the first: zeros
    hash      bytea       NOT NULL CHECK (octet_length(hash) = 32),        -- SHA-256 of previous and of the hash of each row, by id
    rows      integer     NOT NULL CHECK (rows > 0),
    sealed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What operators have changed. A row is written in the transaction of its change.
CREATE TABLE audit_trail (
    id         uuid        PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator   text        CHECK (char_length(operator) BETWEEN 1 AND 100), -- of a person; without an issuer a name that was given, which proves nothing
    client     text        NOT NULL,                                       -- of the key; the database role for the command line
    key_prefix text,                                                       -- null: a token, or the command line
    address    text,
    via        text        NOT NULL CHECK (via IN ('api', 'console', 'cli', 'system')),
    operation  text        NOT NULL,                                       -- of the contract, or a command
    target     text        NOT NULL,                                       -- id of the resource
    job_id     uuid,                                                       -- no foreign key: jobs are deleted after their retention
    reason     text        CHECK (char_length(reason) BETWEEN 1 AND 500),
    issuer     text,                                                       -- of the account of a person; null: a key, or the command line
    subject    text,
    email      text,
    approval_id uuid,                                                      -- of a change that another person has approved
    approved_by json,                                                      -- that person, and its reason
    before     json,                                                       -- of the members that changed; json keeps the text that is sealed
    after      json,
    seal       bigint      REFERENCES audit_seals,                         -- null: the next one
    CHECK ((issuer IS NULL) = (subject IS NULL)),
    CHECK ((approval_id IS NULL) = (approved_by IS NULL))
);
-- What may be about a person, so that it can be forgotten: a row of the trail has "sha256:…" in its place, and seals cover that. Only
-- erasure deletes texts.
CREATE TABLE audit_texts (
    hash     bytea PRIMARY KEY CHECK (hash = sha256(salt || convert_to(text, 'UTF8'))),
    salt     bytea NOT NULL CHECK (octet_length(salt) = 16),
    text     text  NOT NULL,                                               -- JSON
    entry_id uuid  NOT NULL                                                -- in audit_trail
);
CREATE INDEX audit_texts_of_entry ON audit_texts (entry_id);

CREATE TRIGGER texts_never_change BEFORE UPDATE ON audit_texts FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER texts_are_never_emptied BEFORE TRUNCATE ON audit_texts FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE INDEX audit_trail_seal ON audit_trail (seal, id);
CREATE INDEX audit_trail_erasures ON audit_trail (id) WHERE operation = 'eraseUser';
CREATE INDEX audit_trail_target ON audit_trail (target, id);
CREATE INDEX audit_trail_key ON audit_trail (key_prefix, id);
CREATE INDEX audit_trail_operator ON audit_trail (operator, id);

CREATE TRIGGER trail_is_append_only BEFORE DELETE ON audit_trail FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trail_is_never_emptied BEFORE TRUNCATE ON audit_trail FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trail_is_immutable BEFORE UPDATE OF id, at, operator, client, key_prefix, address, via, operation, target, job_id, reason, issuer, subject, email, approval_id, approved_by, before, after ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER trail_is_sealed_once BEFORE UPDATE ON audit_trail FOR EACH ROW WHEN (OLD.seal IS NOT NULL OR NEW.seal IS NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seals_are_append_only BEFORE UPDATE OR DELETE ON audit_seals FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER seals_are_never_emptied BEFORE TRUNCATE ON audit_seals FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE audit_texts, audit_trail, audit_seals;
