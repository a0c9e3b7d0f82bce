-- +goose Up

-- The sold list, bound at the moment of sell-out.
CREATE TABLE freezes (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    root        bytea       NOT NULL CHECK (octet_length(root) = 32),
    sold        integer     NOT NULL CHECK (sold >= 0),
    frozen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TRIGGER freezes_are_immutable BEFORE UPDATE OR DELETE ON freezes
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- One draw per campaign: the primary key says so.
CREATE TABLE draws (
    campaign_id       uuid        PRIMARY KEY REFERENCES campaigns,
    trust             text        NOT NULL CHECK (trust IN ('operator', 'beacon')),
    root              bytea       NOT NULL CHECK (octet_length(root) = 32),
    secret            bytea       NOT NULL CHECK (octet_length(secret) = 32), -- revealed with the result
    randomness        bytea       NOT NULL,                                -- empty without a beacon
    winners           jsonb       NOT NULL,
    execution_version bigint      NOT NULL,                                -- the claim that drew
    executed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TRIGGER draws_are_immutable BEFORE UPDATE OR DELETE ON draws
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE draws, freezes;
