-- +goose Up

-- What lets anyone check a draw. Sales go on meanwhile: no statement reads a large table,
-- and none waits long for a lock.
SET LOCAL lock_timeout = '3s';

-- The strongest lock first, in the order of locks: whoever has locked a campaign's row goes
-- on, and no lock is made stronger while others wait for it.
LOCK TABLE campaigns, commitments, freezes, draws IN ACCESS EXCLUSIVE MODE;

-- The secrets of campaigns, encrypted with draw.secret_key. Commitments never change; what
-- a secret is encrypted with does.
CREATE TABLE draw_secrets (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    sealed      bytea       NOT NULL,
    sealed_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Processes of the release before store a secret with its commitment.
-- +goose StatementBegin
CREATE FUNCTION keep_draw_secret() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO draw_secrets (campaign_id, sealed) VALUES (NEW.campaign_id, NEW.sealed_secret);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER commitments_keep_their_secret AFTER INSERT ON commitments
    FOR EACH ROW WHEN (NEW.sealed_secret IS NOT NULL) EXECUTE FUNCTION keep_draw_secret();
ALTER TABLE commitments ALTER COLUMN sealed_secret DROP NOT NULL;
INSERT INTO draw_secrets (campaign_id, sealed) SELECT campaign_id, sealed_secret FROM commitments;

-- Processes of the release before know no beacon, witness or end in the rules: they would
-- publish a campaign without what its policies promise.
-- +goose StatementBegin
CREATE FUNCTION commitments_keep_their_policies() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked json;
BEGIN
    SELECT policies INTO asked FROM campaigns WHERE id = NEW.campaign_id;
    IF asked ->> 'beacon' = 'true' AND coalesce(NEW.rules::jsonb -> 'beacon', 'null') = 'null'
       OR asked ->> 'witness' = 'true' AND NOT NEW.rules::jsonb ? 'witness'
       OR asked ->> 'unsold' = 'draw' AND NOT NEW.rules::jsonb ? 'unsold' THEN
        RAISE EXCEPTION 'campaign %: its rules lack what its policies say; publish it at a process of the present release', NEW.campaign_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'commitments_keep_their_policies';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER commitments_keep_their_policies BEFORE INSERT ON commitments
    FOR EACH ROW EXECUTE FUNCTION commitments_keep_their_policies();

-- The only change of a commitment: it loses the copy of its secret, when that is encrypted
-- anew in draw_secrets.
-- +goose StatementBegin
CREATE FUNCTION commitments_lose_their_secret_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.sealed_secret IS NULL
       AND (NEW.campaign_id, NEW.rules, NEW.commitment) = (OLD.campaign_id, OLD.rules, OLD.commitment) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'check_violation', CONSTRAINT = 'append_only';
END $$;
-- +goose StatementEnd
DROP TRIGGER commitments_are_immutable ON commitments;
CREATE TRIGGER commitments_are_immutable BEFORE UPDATE ON commitments
    FOR EACH ROW EXECUTE FUNCTION commitments_lose_their_secret_only();
CREATE TRIGGER commitments_are_kept BEFORE DELETE ON commitments
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The freeze record, canonical JSON, and the round of the beacon in it. A freeze of the
-- release before has none: its record follows from its columns.
ALTER TABLE freezes
    ADD COLUMN record text,
    ADD COLUMN round  bigint CHECK (round >= 1),
    ADD CHECK (record IS NOT NULL OR round IS NULL);

-- Processes of the release before freeze without a record. Where the rules ask for more
-- than they know, nothing is stored: the draw's own first step freezes then.
-- +goose StatementBegin
CREATE FUNCTION freezes_fit_their_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.record IS NULL AND EXISTS (
        SELECT FROM commitments
        WHERE campaign_id = NEW.campaign_id
          AND (rules::jsonb -> 'beacon' <> 'null' OR rules::jsonb ? 'unsold' OR rules::jsonb ? 'witness')) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER freezes_fit_their_rules BEFORE INSERT ON freezes
    FOR EACH ROW EXECUTE FUNCTION freezes_fit_their_rules();

-- A record is public before its round is due, or it is not stored: a worker that stood still
-- between the two would let somebody know the round first. Looked at when the transaction
-- commits.
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

-- The nodes of a frozen tree that stand over 1,024 leaves each (the last over the rest), so
-- that the path of a leaf needs no more than its own 1,024 leaves.
CREATE TABLE freeze_subtrees (
    campaign_id uuid    NOT NULL REFERENCES freezes,
    number      integer NOT NULL CHECK (number >= 0),
    layer       integer NOT NULL, -- of its first leaf
    col         integer NOT NULL,
    hash        bytea   NOT NULL CHECK (octet_length(hash) = 32),
    PRIMARY KEY (campaign_id, number)
);

-- The chains of public randomness that campaigns have bound themselves to.
CREATE TABLE beacon_chains (
    chain_hash   bytea   PRIMARY KEY CHECK (octet_length(chain_hash) = 32),
    public_key   bytea   NOT NULL,
    genesis_time bigint  NOT NULL,                                 -- Unix seconds
    genesis_seed bytea   NOT NULL,
    beacon_id    text    NOT NULL,
    period_s     integer NOT NULL CHECK (period_s >= 1)
);

-- Verified rounds: those that draws needed, and those seen before a freeze.
CREATE TABLE beacon_rounds (
    chain_hash bytea       NOT NULL REFERENCES beacon_chains,
    round      bigint      NOT NULL CHECK (round >= 1),
    signature  bytea       NOT NULL,
    randomness bytea       NOT NULL CHECK (randomness = sha256(signature)),
    stored_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_hash, round)
);

-- RFC 3161 tokens over the hash of a freeze record. None comes after the draw.
CREATE TABLE witness_tokens (
    campaign_id uuid        NOT NULL REFERENCES freezes,
    authority   bytea       NOT NULL CHECK (octet_length(authority) = 32), -- SHA-256 of its root certificate
    token       bytea       NOT NULL,                                      -- DER
    gen_time    timestamptz NOT NULL,
    PRIMARY KEY (campaign_id, authority)
);
-- +goose StatementBegin
CREATE FUNCTION witness_tokens_before_the_draw() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM draws WHERE campaign_id = NEW.campaign_id) THEN
        RAISE EXCEPTION 'campaign % is drawn: no token comes later', NEW.campaign_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'witness_tokens_before_the_draw';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER witness_tokens_before_the_draw BEFORE INSERT ON witness_tokens
    FOR EACH ROW EXECUTE FUNCTION witness_tokens_before_the_draw();

-- How far the positions of a large campaign are made before its publication: they are made
-- in steps, and nobody is shown them while there is a row. It is deleted in the transaction
-- that publishes the campaign.
CREATE TABLE position_fills (
    campaign_id uuid    PRIMARY KEY REFERENCES campaigns,
    draft       bytea   CHECK (octet_length(draft) = 32),         -- SHA-256 of the prices; null: of another draft, being deleted
    seed        bytea   NOT NULL CHECK (octet_length(seed) = 32), -- of the secret order of ranks
    made        integer NOT NULL CHECK (made >= 0)                -- positions, by layer and column
);

-- What a draw under way waits for, for people to read; nothing is decided by it.
CREATE TABLE draw_waits (
    campaign_id uuid        PRIMARY KEY REFERENCES campaigns,
    reason      text        NOT NULL,
    retry_at    timestamptz NOT NULL
);

-- A draw is never weaker than its rules: with a beacon in them it has the randomness of the
-- round that its freeze record names.
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

-- When a campaign is drawn although not everything is sold: the end of its sale, as its
-- rules say it since its publication. Null: it is drawn when everything is sold, and only
-- then. No release can move the end of such a sale.
ALTER TABLE campaigns
    ADD COLUMN draws_at timestamptz,
    ADD CONSTRAINT campaigns_draw_at_their_end CHECK (draws_at IS NULL OR draws_at IS NOT DISTINCT FROM sale_ends_at);
CREATE INDEX campaigns_to_draw ON campaigns (draws_at) WHERE state = 'active' AND draws_at IS NOT NULL;
-- +goose StatementBegin
CREATE FUNCTION draws_at_is_bound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'campaign % is published: when it is drawn does not change', NEW.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'draws_at_is_bound';
END $$;
-- +goose StatementEnd
CREATE TRIGGER draws_at_is_bound BEFORE UPDATE OF draws_at ON campaigns
    FOR EACH ROW WHEN (OLD.state <> 'pending' AND NEW.draws_at IS DISTINCT FROM OLD.draws_at) EXECUTE FUNCTION draws_at_is_bound();

-- Evidence is append-only, one row or all of them.
CREATE TRIGGER commitments_are_not_truncated BEFORE TRUNCATE ON commitments FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER freezes_are_not_truncated BEFORE TRUNCATE ON freezes FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER draws_are_not_truncated BEFORE TRUNCATE ON draws FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER freeze_subtrees_are_immutable BEFORE UPDATE OR DELETE ON freeze_subtrees FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER freeze_subtrees_are_not_truncated BEFORE TRUNCATE ON freeze_subtrees FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_chains_are_immutable BEFORE UPDATE OR DELETE ON beacon_chains FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_chains_are_not_truncated BEFORE TRUNCATE ON beacon_chains FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_rounds_are_immutable BEFORE UPDATE OR DELETE ON beacon_rounds FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER beacon_rounds_are_not_truncated BEFORE TRUNCATE ON beacon_rounds FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER witness_tokens_are_immutable BEFORE UPDATE OR DELETE ON witness_tokens FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER witness_tokens_are_not_truncated BEFORE TRUNCATE ON witness_tokens FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- +goose Down
-- The release before would draw without the beacon that the rules name, with a secret that
-- the freeze record has published.
-- +goose StatementBegin
DO $$ BEGIN
    IF EXISTS (SELECT FROM commitments c JOIN campaigns g ON g.id = c.campaign_id
               WHERE g.state IN ('active', 'drawing')
                 AND (c.rules::jsonb -> 'beacon' <> 'null' OR c.rules::jsonb ? 'unsold' OR c.rules::jsonb ? 'witness')) THEN
        RAISE EXCEPTION 'campaigns with a beacon, a witness or an end in their rules are not drawn yet: the release before cannot keep these rules';
    END IF;
    IF EXISTS (SELECT FROM campaigns c LEFT JOIN freezes f ON f.campaign_id = c.id WHERE c.state = 'drawing' AND f.campaign_id IS NULL) THEN
        RAISE EXCEPTION 'campaigns are drawing and not frozen yet: the release before cannot freeze them';
    END IF;
END $$;
-- +goose StatementEnd
DELETE FROM positions WHERE campaign_id IN (SELECT campaign_id FROM position_fills);
DROP TRIGGER commitments_keep_their_policies ON commitments;
DROP FUNCTION commitments_keep_their_policies;
DROP TRIGGER draws_at_is_bound ON campaigns;
DROP FUNCTION draws_at_is_bound;
ALTER TABLE campaigns DROP COLUMN draws_at;
DROP TRIGGER draws_are_not_truncated ON draws;
DROP TRIGGER freezes_are_not_truncated ON freezes;
DROP TRIGGER commitments_are_not_truncated ON commitments;
DROP TRIGGER draws_keep_their_rules ON draws;
DROP FUNCTION draws_keep_their_rules;
DROP TABLE position_fills, draw_waits, witness_tokens, beacon_rounds, beacon_chains, freeze_subtrees;
DROP FUNCTION witness_tokens_before_the_draw;
DROP TRIGGER freezes_come_before_their_round ON freezes;
DROP FUNCTION freezes_come_before_their_round;
DROP TRIGGER freezes_fit_their_rules ON freezes;
DROP FUNCTION freezes_fit_their_rules;
ALTER TABLE freezes DROP COLUMN round, DROP COLUMN record;
DROP TRIGGER commitments_are_kept ON commitments;
DROP TRIGGER commitments_are_immutable ON commitments;
DROP TRIGGER commitments_keep_their_secret ON commitments;
DROP FUNCTION commitments_lose_their_secret_only, keep_draw_secret;
-- keeps: the secrets go back to where the release before reads them
UPDATE commitments c SET sealed_secret = s.sealed FROM draw_secrets s WHERE s.campaign_id = c.campaign_id;
ALTER TABLE commitments ALTER COLUMN sealed_secret SET NOT NULL;
CREATE TRIGGER commitments_are_immutable BEFORE UPDATE OR DELETE ON commitments
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- keeps: commitments has the secrets again
DROP TABLE draw_secrets;
