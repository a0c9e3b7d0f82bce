-- +goose NO TRANSACTION
-- +goose Up

-- What apps write on resources for themselves, and which client made a resource: who is to
-- hear of it. Sales go on meanwhile: nothing here reads a table while it is locked, and each
-- statement may be repeated. Null is none, so processes of the release before go on.
--
-- The bound is wider than that of the API (2 KiB of keys and values): here each quotation
-- mark counts twice, and the punctuation of 20 pairs with it.
ALTER TABLE purchases ADD COLUMN IF NOT EXISTS client text, ADD COLUMN IF NOT EXISTS metadata jsonb;
ALTER TABLE holds ADD COLUMN IF NOT EXISTS client text, ADD COLUMN IF NOT EXISTS metadata jsonb;
ALTER TABLE ledger_entries ADD COLUMN IF NOT EXISTS metadata jsonb;
ALTER TABLE wallets ADD COLUMN IF NOT EXISTS client text;

ALTER TABLE purchases DROP CONSTRAINT IF EXISTS purchases_metadata;
ALTER TABLE purchases ADD CONSTRAINT purchases_metadata
    CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608) NOT VALID;
ALTER TABLE purchases VALIDATE CONSTRAINT purchases_metadata;
ALTER TABLE holds DROP CONSTRAINT IF EXISTS holds_metadata;
ALTER TABLE holds ADD CONSTRAINT holds_metadata
    CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608) NOT VALID;
ALTER TABLE holds VALIDATE CONSTRAINT holds_metadata;
ALTER TABLE ledger_entries DROP CONSTRAINT IF EXISTS ledger_entries_metadata;
ALTER TABLE ledger_entries ADD CONSTRAINT ledger_entries_metadata
    CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608) NOT VALID;
ALTER TABLE ledger_entries VALIDATE CONSTRAINT ledger_entries_metadata;

-- Beside the rows of campaigns and wallets, not in them: those are written with every sale
-- and movement, and kept narrow. No row here: none.
CREATE TABLE IF NOT EXISTS campaign_metadata (
    campaign_id uuid  PRIMARY KEY REFERENCES campaigns,
    metadata    jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608)
);
CREATE TABLE IF NOT EXISTS wallet_metadata (
    wallet_id uuid  PRIMARY KEY,                                           -- no foreign key: see wallets
    metadata  jsonb NOT NULL CHECK (jsonb_typeof(metadata) = 'object' AND octet_length(metadata::text) <= 4608)
);

-- Who made what is there, as far as its job is kept. A thousand jobs at a time; what is
-- locked at that moment is left, and has no client.
-- +goose StatementBegin
DO $$
DECLARE
    done uuid := '00000000-0000-0000-0000-000000000000';
    upto uuid;
BEGIN
    LOOP
        SELECT id INTO upto FROM (SELECT id FROM jobs WHERE id > done ORDER BY id LIMIT 1000) AS chunk ORDER BY id DESC LIMIT 1;
        EXIT WHEN upto IS NULL;
        WITH made AS MATERIALIZED (
            SELECT p.id, j.client FROM jobs j JOIN purchases p ON p.job_id = j.id
            WHERE j.id > done AND j.id <= upto AND j.kind = 'purchase' AND p.client IS NULL
            FOR NO KEY UPDATE OF p SKIP LOCKED)
        UPDATE purchases p SET client = made.client FROM made WHERE p.id = made.id;
        WITH made AS MATERIALIZED (
            SELECT h.id, j.client FROM jobs j JOIN holds h ON h.id = (j.result ->> 'id')::uuid
            WHERE j.id > done AND j.id <= upto AND j.kind = 'hold-create' AND j.state = 'succeeded' AND h.client IS NULL
            FOR NO KEY UPDATE OF h SKIP LOCKED)
        UPDATE holds h SET client = made.client FROM made WHERE h.id = made.id;
        WITH made AS MATERIALIZED (
            SELECT w.id, j.client FROM jobs j JOIN wallets w ON w.id = (j.result ->> 'id')::uuid
            WHERE j.id > done AND j.id <= upto AND j.kind = 'wallet-open' AND j.state = 'succeeded' AND w.client IS NULL
            FOR NO KEY UPDATE OF w SKIP LOCKED)
        UPDATE wallets w SET client = made.client FROM made WHERE w.id = made.id;
        COMMIT;
        done := upto;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE IF EXISTS campaign_metadata, wallet_metadata;
ALTER TABLE wallets DROP COLUMN IF EXISTS client;
ALTER TABLE ledger_entries DROP COLUMN IF EXISTS metadata;
ALTER TABLE holds DROP COLUMN IF EXISTS metadata, DROP COLUMN IF EXISTS client;
ALTER TABLE purchases DROP COLUMN IF EXISTS metadata, DROP COLUMN IF EXISTS client;
