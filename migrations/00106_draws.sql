-- loses: draw_key_check, draw_waits, draw_voids, draws, freeze_subtrees, freezes
-- loses: beacon_rounds, beacon_chains, draw_secrets, commitments
-- +goose Up

-- The records of a draw are append-only.

-- The commitment of a campaign, made at publication.
CREATE TABLE commitments (
    campaign_id uuid  PRIMARY KEY REFERENCES campaigns,
    rules       text  NOT NULL,                                            -- canonical JSON, the bytes that were hashed
    commitment  bytea NOT NULL CHECK (octet_length(commitment) = 32)
);
CREATE TRIGGER commitments_are_immutable BEFORE UPDATE OR DELETE ON commitments FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER commitments_are_not_truncated BEFORE TRUNCATE ON commitments FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The secrets of campaigns, encrypted with draw.secret_key. Commitments never change; the
-- encryption of a secret does.
CREATE TABLE draw_secrets (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    sealed      bytea       NOT NULL,
    sealed_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The chains of public randomness to which campaigns are bound.
CREATE TABLE beacon_chains (
    chain_hash   bytea   PRIMARY KEY CHECK (octet_length(chain_hash) = 32),
    public_key   bytea   NOT NULL,
    genesis_time bigint  NOT NULL,                                         -- Unix seconds
    genesis_seed bytea   NOT NULL,
    beacon_id    text    NOT NULL,
    period_s     integer NOT NULL CHECK (period_s >= 1)
);
CREATE TRIGGER beacon_chains_are_immutable BEFORE UPDATE OR DELETE ON beacon_chains FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_chains_are_not_truncated BEFORE TRUNCATE ON beacon_chains FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Verified rounds: those that draws used, and those seen before a freeze. Readers verify a row again, so that
-- a false row cannot block the true one: a round has exactly one valid signature.
CREATE TABLE beacon_rounds (
    chain_hash bytea       NOT NULL REFERENCES beacon_chains,
    round      bigint      NOT NULL CHECK (round >= 1),
    signature  bytea       NOT NULL,
    randomness bytea       NOT NULL CHECK (randomness = sha256(signature)),
    stored_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_hash, round, signature)
);
CREATE TRIGGER beacon_rounds_are_immutable BEFORE UPDATE OR DELETE ON beacon_rounds FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_rounds_are_not_truncated BEFORE TRUNCATE ON beacon_rounds FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The root of the sold list after the end of the sale, and the published freeze record.
CREATE TABLE freezes (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    root        bytea       NOT NULL CHECK (octet_length(root) = 32),
    sold        integer     NOT NULL CHECK (sold >= 0),
    record      text        NOT NULL,                                      -- canonical JSON
    round       bigint      CHECK (round >= 1),                            -- of the beacon; null: no beacon
    frozen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER freezes_are_immutable BEFORE UPDATE OR DELETE ON freezes FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER freezes_are_not_truncated BEFORE TRUNCATE ON freezes FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A record must be public before its round is due, or it is not stored: otherwise a delayed worker
-- could let someone know the round before the freeze. Checked at commit.
-- +goose StatementBegin
CREATE FUNCTION freezes_come_before_their_round() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM commitments c JOIN beacon_chains b ON b.chain_hash = decode(c.rules::jsonb -> 'beacon' ->> 'chain_hash', 'hex')
        WHERE c.campaign_id = NEW.campaign_id
          AND clock_timestamp() < to_timestamp(b.genesis_time + (NEW.round - 1) * b.period_s)) THEN
        RAISE EXCEPTION 'campaign %: round % is due before its freeze record is stored', NEW.campaign_id, NEW.round
            USING ERRCODE = 'check_violation', CONSTRAINT = 'freezes_come_before_their_round';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER freezes_come_before_their_round AFTER INSERT ON freezes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.round IS NOT NULL) EXECUTE FUNCTION freezes_come_before_their_round();

-- The frozen list: the tree nodes over 1,024 leaves each (the last over the rest), with these
-- leaves of 56 bytes. The path of a leaf needs only its own 1,024 leaves and the nodes.
CREATE TABLE freeze_subtrees (
    campaign_id uuid    NOT NULL REFERENCES freezes,
    number      integer NOT NULL CHECK (number >= 0),
    hash        bytea   NOT NULL CHECK (octet_length(hash) = 32),
    leaves      bytea   NOT NULL CHECK (octet_length(leaves) BETWEEN 56 AND 56 * 1024 AND octet_length(leaves) % 56 = 0),
    PRIMARY KEY (campaign_id, number)
);
ALTER TABLE freeze_subtrees ALTER COLUMN leaves SET STORAGE EXTERNAL; -- hashes do not compress
CREATE TRIGGER freeze_subtrees_are_immutable BEFORE UPDATE OR DELETE ON freeze_subtrees FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER freeze_subtrees_are_not_truncated BEFORE TRUNCATE ON freeze_subtrees FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- One draw per campaign: the primary key ensures it.
CREATE TABLE draws (
    campaign_id       uuid        PRIMARY KEY REFERENCES campaigns,
    trust             text        NOT NULL CHECK (trust IN ('operator', 'beacon')),
    root              bytea       NOT NULL CHECK (octet_length(root) = 32),
    secret            bytea       NOT NULL CHECK (octet_length(secret) = 32), -- revealed with the result
    randomness        bytea       NOT NULL,                                -- empty without a beacon
    winners           jsonb       NOT NULL,
    execution_version bigint      NOT NULL,                                -- the lease that drew
    executed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER draws_are_immutable BEFORE UPDATE OR DELETE ON draws FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER draws_are_not_truncated BEFORE TRUNCATE ON draws FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- With a beacon in its rules, a draw must use the randomness of the round that its freeze record
-- names.
-- +goose StatementBegin
CREATE FUNCTION draws_keep_their_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    chain text;
BEGIN
    SELECT rules::jsonb -> 'beacon' ->> 'chain_hash' INTO chain FROM commitments WHERE campaign_id = NEW.campaign_id;
    IF (chain IS NULL) <> (NEW.trust = 'operator') THEN
        RAISE EXCEPTION 'campaign %: trust % is not what its rules say', NEW.campaign_id, NEW.trust
            USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_keep_their_rules';
    END IF;
    IF EXISTS (SELECT FROM campaigns WHERE id = NEW.campaign_id AND state = 'cancelled') THEN
        RAISE EXCEPTION 'campaign %: its draw is void', NEW.campaign_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_keep_their_rules';
    END IF;
    IF chain IS NOT NULL AND NOT EXISTS (
        SELECT FROM freezes f JOIN beacon_rounds r ON r.chain_hash = decode(chain, 'hex') AND r.round = f.round
        WHERE f.campaign_id = NEW.campaign_id AND r.randomness = NEW.randomness) THEN
        RAISE EXCEPTION 'campaign %: the randomness is not that of the round in its freeze record', NEW.campaign_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_keep_their_rules';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER draws_keep_their_rules BEFORE INSERT ON draws
    FOR EACH ROW EXECUTE FUNCTION draws_keep_their_rules();

-- The announced void of a draw with a beacon, whose round is 24 hours overdue. Until voids_at
-- anyone can still post the round.
CREATE TABLE draw_voids (
    campaign_id  uuid        PRIMARY KEY REFERENCES freezes,
    announced_at timestamptz NOT NULL,
    voids_at     timestamptz NOT NULL,
    CHECK (voids_at >= announced_at + interval '168 hours')
);
-- The round of a frozen draw with a beacon; no row: it has none.
-- +goose StatementBegin
CREATE FUNCTION draw_rounds(campaign uuid) RETURNS TABLE (round bigint, due_at timestamptz, is_known boolean) LANGUAGE sql STABLE AS $$
    SELECT f.round, to_timestamp(b.genesis_time + (f.round - 1) * b.period_s),
           EXISTS (SELECT FROM beacon_rounds r WHERE r.chain_hash = b.chain_hash AND r.round = f.round)
    FROM freezes f JOIN commitments c USING (campaign_id)
    JOIN beacon_chains b ON b.chain_hash = decode(c.rules::jsonb -> 'beacon' ->> 'chain_hash', 'hex')
    WHERE f.campaign_id = campaign AND f.round IS NOT NULL
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION draw_voids_are_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.announced_at > clock_timestamp() OR NOT EXISTS (
        SELECT FROM draw_rounds(NEW.campaign_id) WHERE due_at + interval '24 hours' <= NEW.announced_at AND NOT is_known) THEN
        RAISE EXCEPTION 'campaign %: the round of its draw is not due for 24 hours, or is known', NEW.campaign_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'draw_voids_are_late';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER draw_voids_are_late BEFORE INSERT ON draw_voids FOR EACH ROW EXECUTE FUNCTION draw_voids_are_late();
CREATE TRIGGER draw_voids_are_immutable BEFORE UPDATE OR DELETE ON draw_voids FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER draw_voids_are_not_truncated BEFORE TRUNCATE ON draw_voids FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Only a stuck draw can be voided: see docs/draw.md. The void ends the leases of all workers.
-- +goose StatementBegin
CREATE FUNCTION draws_are_voided_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.execution_version > OLD.execution_version
       AND NOT EXISTS (SELECT FROM draws WHERE campaign_id = NEW.id)
       AND (CASE WHEN EXISTS (SELECT FROM freezes WHERE campaign_id = NEW.id AND round IS NOT NULL)
           THEN EXISTS (SELECT FROM draw_voids v, draw_rounds(NEW.id) r
                        WHERE v.campaign_id = NEW.id AND v.voids_at <= clock_timestamp() AND NOT r.is_known)
           ELSE OLD.draw_started_at + interval '24 hours' <= clock_timestamp() END) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'campaign %: its draw cannot be voided now', NEW.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_are_voided_late';
END $$;
-- +goose StatementEnd
CREATE TRIGGER draws_are_voided_late BEFORE UPDATE OF state ON campaigns
    FOR EACH ROW WHEN (OLD.state = 'drawing' AND NEW.state = 'cancelled') EXECUTE FUNCTION draws_are_voided_late();

-- What a draw waits for. Informational only.
CREATE TABLE draw_waits (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    reason      text        NOT NULL,
    retry_at    timestamptz NOT NULL,
    faults      integer     NOT NULL DEFAULT 0 CHECK (faults >= 0)         -- consecutive failed attempts; waits for the beacon do not count
);

-- An encrypted text: a process whose keys do not decrypt it cannot decrypt the draws' secrets. The
-- first process with a key writes it; a key rotation re-encrypts it.
CREATE TABLE draw_key_check (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    sealed bytea   NOT NULL
);

-- +goose Down
DROP TRIGGER draws_are_voided_late ON campaigns;
DROP TABLE draw_key_check, draw_waits, draw_voids, draws, freeze_subtrees, freezes, beacon_rounds, beacon_chains, draw_secrets, commitments;
DROP FUNCTION draws_are_voided_late, draw_voids_are_late, draw_rounds, draws_keep_their_rules, freezes_come_before_their_round;
