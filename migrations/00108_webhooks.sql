-- loses: webhook_attempts, webhook_deliveries, webhook_events, webhook_secrets, webhook_endpoints
-- +goose Up

-- Webhooks to apps. No foreign keys: inserts of events lock no endpoint row; the audit checks
-- the references.

-- The endpoints of apps. The worker that sends to one has its lease; every write about a delivery
-- compares its version.
CREATE TABLE webhook_endpoints (
    id              uuid        PRIMARY KEY,
    client          text        NOT NULL CHECK (char_length(client) BETWEEN 1 AND 255), -- whose events it gets
    url             text        NOT NULL CHECK (char_length(url) BETWEEN 1 AND 2000),
    events          text[]      NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 50), -- *, purchase.*, purchase.completed
    description     text        CHECK (char_length(description) BETWEEN 1 AND 500),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by         text        CHECK (char_length(made_by) BETWEEN 1 AND 64), -- prefix of the key that last set the address or enabled it; null: no key
    verified_at     timestamptz,                                           -- when this url was verified; null: its events wait
    challenged_at   timestamptz,                                           -- when the last challenge was sent, to any url
    challenge_error text        CHECK (char_length(challenge_error) BETWEEN 1 AND 500), -- as shown to its client
    disabled_at     timestamptz,
    disabled_reason text        CHECK (disabled_reason IN ('asked', 'gone', 'failing', 'unverified', 'revoked')),
    failing_since   timestamptz,                                           -- no delivery has succeeded since
    failures        integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),  -- consecutive failed runs
    paused_until    timestamptz,                                           -- nothing is sent before this time
    slow            boolean     NOT NULL DEFAULT false,                    -- it uses the slots of slow endpoints
    version         bigint      NOT NULL DEFAULT 0,                        -- fencing: incremented with every lease and every write
    due_at          timestamptz NOT NULL DEFAULT clock_timestamp(),        -- not leased before this time, whatever is due
    wakes           integer     NOT NULL DEFAULT 0,                        -- as in payments
    lease_until     timestamptz,
    deleted_at      timestamptz,                                           -- the sweep old-records deletes its remaining rows
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    CHECK ((failing_since IS NULL) = (failures = 0))
) WITH (fillfactor = 70);

CREATE INDEX webhook_endpoints_of_client ON webhook_endpoints (client, id);
CREATE INDEX webhook_endpoints_of_key ON webhook_endpoints (made_by);

-- The signing secrets of endpoints, encrypted with draw.secret_key. Several during a rotation.
CREATE TABLE webhook_secrets (
    id          uuid        PRIMARY KEY,
    endpoint_id uuid        NOT NULL,
    sealed      bytea       NOT NULL,
    sealed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz                                                -- null: the current one
);

CREATE INDEX webhook_secrets_of_endpoint ON webhook_secrets (endpoint_id, created_at);

-- The events. The id is also the webhook-id.
CREATE TABLE webhook_events (
    id          uuid        PRIMARY KEY,                                   -- version 7
    client      text,                                                      -- the owner of the resource; null: sent to all clients
    type        text        NOT NULL CHECK (type ~ '^[a-z-]+\.[a-z_]+$'),
    subject     uuid        NOT NULL,                                      -- the resource; for wallet.* the wallet
    version     bigint      CHECK (version >= 1),                          -- for wallet.*: of the wallet's event
    campaign_id uuid,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload     json,                                                      -- json, not jsonb: every attempt has the same bytes; null: never rendered
    CHECK (octet_length(payload::text) <= 262144)
) WITH (fillfactor = 80); -- the payload is written later: free space in the page makes that a HOT update

CREATE INDEX webhook_events_at ON webhook_events (at);
CREATE INDEX webhook_events_of_client ON webhook_events (client, at);

-- One event for one endpoint.
CREATE TABLE webhook_deliveries (
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    state       text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    attempts    smallint    NOT NULL DEFAULT 0 CHECK (attempts >= 0),      -- since its creation or last replay
    next_at     timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    PRIMARY KEY (endpoint_id, event_id),
    CHECK ((state = 'pending') = (next_at IS NOT NULL)),
    CHECK ((state = 'pending') = (finished_at IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at, event_id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, event_id) WHERE state = 'failed';

-- The attempts and their results.
CREATE TABLE webhook_attempts (
    event_id    uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    number      bigint      GENERATED ALWAYS AS IDENTITY,                  -- orders attempts with the same time
    at          timestamptz NOT NULL,                                      -- when it began
    duration_ms integer     NOT NULL CHECK (duration_ms >= 0),
    status      smallint    CHECK (status BETWEEN 100 AND 999),            -- of the response; null: there was none
    error       text        CHECK (char_length(error) BETWEEN 1 AND 500),  -- for operators; null: it succeeded
    failure     text        CHECK (failure IN ('timeout', 'tls', 'unreachable')), -- for apps; null: there was a response
    PRIMARY KEY (event_id, endpoint_id, number)
);

-- A UUID of version 7, ordered by creation.
-- +goose StatementBegin
CREATE FUNCTION webhook_event_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
-- +goose StatementEnd

-- Whether the subscribed events include a type.
-- +goose StatementBegin
CREATE FUNCTION webhook_wanted(events text[], type text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT type = ANY(events) OR split_part(type, '.', 1) || '.*' = ANY(events) OR '*' = ANY(events)
$$;
-- +goose StatementEnd

-- Notifies the process of this session at commit that deliveries are due, so that it enqueues tasks
-- at once (package boot). Other processes are not notified, and nothing is stored.
-- +goose StatementBegin
CREATE FUNCTION webhooks_due(endpoints uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(endpoints) > 0 THEN
        RAISE NOTICE 'webhook endpoints are due' USING DETAIL = array_to_string(endpoints, ',');
    END IF;
END $$;
-- +goose StatementEnd

-- Inserts the events to which endpoints are subscribed, and deliveries for enabled endpoints, which
-- become due at commit. The arrays are parallel; a null client is all clients. It locks no existing
-- row.
--
-- OFFSET 0 forces an index search by client, whatever the table's statistics: endpoints of other
-- clients are not read. Only an event for all clients reads all endpoints. PL/pgSQL, because a
-- session then plans the statement once; an SQL function is planned at every call.
-- +goose StatementBegin
CREATE FUNCTION emit_webhooks(clients text[], types text[], subjects uuid[], versions bigint[], campaigns uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    due uuid[];
BEGIN
    WITH happened AS MATERIALIZED (
        SELECT webhook_event_id() AS id, clock_timestamp() AS at, h.*
        FROM unnest(clients, types, subjects, versions, campaigns) AS h (client, type, subject, version, campaign_id)),
    heard AS (
        SELECT h.*, p.* FROM happened h, LATERAL (
            SELECT id AS endpoint_id, events, verified_at, disabled_at, paused_until, deleted_at
            FROM webhook_endpoints WHERE client = h.client OFFSET 0) p
        UNION ALL
        SELECT h.*, p.id, p.events, p.verified_at, p.disabled_at, p.paused_until, p.deleted_at FROM happened h, webhook_endpoints p
        WHERE array_position(clients, NULL) IS NOT NULL AND h.client IS NULL),
    wanted AS MATERIALIZED (
        SELECT id, client, type, subject, version, campaign_id, at, endpoint_id, disabled_at IS NULL AS sends,
               verified_at IS NOT NULL AND disabled_at IS NULL AND (paused_until IS NULL OR paused_until <= clock_timestamp()) AS due
        FROM heard
        WHERE webhook_wanted(events, type) AND deleted_at IS NULL),
    stored AS (
        INSERT INTO webhook_events (id, client, type, subject, version, campaign_id, at)
        SELECT DISTINCT id, client, type, subject, version, campaign_id, at FROM wanted),
    sent AS (
        INSERT INTO webhook_deliveries (event_id, endpoint_id, next_at) SELECT id, endpoint_id, at FROM wanted WHERE sends)
    SELECT array_agg(DISTINCT w.endpoint_id) FILTER (WHERE w.due) INTO due FROM wanted w;
    PERFORM webhooks_due(due);
END $$;
-- +goose StatementEnd

-- A trigger writes the events of a table in the same transaction, for every writer of the table.
-- Without endpoints it costs one read of an empty table.
--
-- Old and new rows are not joined: a session plans such a join once, for the rows of its first
-- statement, often a single one, and would then use a nested loop for batches. NOT IN uses a hash
-- table in any plan.

-- +goose StatementBegin
CREATE FUNCTION purchases_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhook_endpoints) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        PERFORM emit_webhooks(array_agg(n.client), array_agg('purchase.completed'::text), array_agg(n.id), array_agg(NULL::bigint), array_agg(n.campaign_id))
        FROM new_rows n WHERE n.completed_at IS NOT NULL HAVING count(*) > 0;
        RETURN NULL;
    END IF;
    PERFORM emit_webhooks(array_agg(e.client), array_agg(e.type), array_agg(e.id), array_agg(NULL::bigint), array_agg(e.campaign_id))
    FROM (SELECT 'purchase.completed' AS type, n.* FROM new_rows n
          WHERE n.completed_at IS NOT NULL AND n.id NOT IN (SELECT id FROM old_rows WHERE completed_at IS NOT NULL)
          UNION ALL SELECT 'purchase.awaiting_action', n.* FROM new_rows n
          WHERE n.state = 'awaiting_action' AND n.id NOT IN (SELECT id FROM old_rows WHERE state = 'awaiting_action')
          UNION ALL SELECT 'purchase.failed', n.* FROM new_rows n
          WHERE n.failure IS NOT NULL AND n.id NOT IN (SELECT id FROM old_rows WHERE failure IS NOT NULL)
          UNION ALL SELECT 'purchase.cancelled', n.* FROM new_rows n
          WHERE n.cancelled_at IS NOT NULL AND n.id NOT IN (SELECT id FROM old_rows WHERE cancelled_at IS NOT NULL)
          UNION ALL SELECT 'purchase.partially_cancelled', n.* FROM new_rows n, jsonb_array_elements(n.partial_cancellations) part
          WHERE (n.id, part ->> 'job_id') NOT IN (SELECT id, part ->> 'job_id' FROM old_rows, jsonb_array_elements(partial_cancellations) part)
          UNION ALL SELECT 'purchase.refunded', n.* FROM new_rows n
          WHERE n.state = 'refunded' AND n.id NOT IN (SELECT id FROM old_rows WHERE state = 'refunded')) e
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holds_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhook_endpoints) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        PERFORM emit_webhooks(array_agg(n.client), array_agg('hold.created'::text), array_agg(n.id), array_agg(NULL::bigint), array_agg(n.campaign_id))
        FROM new_rows n HAVING count(*) > 0;
        RETURN NULL;
    END IF;
    PERFORM emit_webhooks(array_agg(n.client), array_agg('hold.' || n.state), array_agg(n.id), array_agg(NULL::bigint), array_agg(n.campaign_id))
    FROM new_rows n
    WHERE n.state <> 'active' AND n.id NOT IN (SELECT id FROM old_rows WHERE state <> 'active') HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- A draw at the end of the sale is no sell-out. A campaign that ends while it is paused is not
-- resumed.
-- +goose StatementBegin
CREATE FUNCTION campaigns_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    types text[] := CASE WHEN NEW.state = OLD.state THEN ARRAY[CASE WHEN NEW.paused_at IS NULL THEN 'campaign.resumed' ELSE 'campaign.paused' END]
                         WHEN NEW.state = 'drawing' AND NEW.positions_sold = NEW.positions_total THEN ARRAY['campaign.sold_out', 'campaign.drawing']
                         WHEN NEW.state = 'drawing' THEN ARRAY['campaign.drawing']
                         WHEN NEW.state = 'completed' THEN ARRAY['campaign.drawn']
                         WHEN NEW.state = 'cancelled' THEN ARRAY['campaign.cancelled'] END;
BEGIN
    PERFORM emit_webhooks(array_agg(NULL::text), array_agg(type), array_agg(NEW.id), array_agg(NULL::bigint), array_agg(NEW.id))
    FROM unnest(types) AS type HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION freezes_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM emit_webhooks(ARRAY[NULL]::text[], ARRAY['campaign.frozen'], ARRAY[NEW.campaign_id], ARRAY[NULL]::bigint[], ARRAY[NEW.campaign_id]);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION draw_voids_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM emit_webhooks(ARRAY[NULL]::text[], ARRAY['campaign.void_announced'], ARRAY[NEW.campaign_id], ARRAY[NULL]::bigint[], ARRAY[NEW.campaign_id]);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- As in the timeline of the purchase: a closed inquiry may become a dispute.
-- +goose StatementBegin
CREATE FUNCTION disputes_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    opened boolean := TG_OP = 'INSERT' OR OLD.closed AND NOT NEW.closed;
    closed boolean := NEW.closed AND (TG_OP = 'INSERT' OR NOT OLD.closed OR NEW.status <> OLD.status);
BEGIN
    PERFORM emit_webhooks(array_agg(p.client), array_agg(e.type), array_agg(p.id), array_agg(NULL::bigint), array_agg(p.campaign_id))
    FROM (VALUES ('dispute.created', opened), ('dispute.closed', closed)) AS e (type, happened), purchases p
    WHERE e.happened AND p.id = NEW.purchase_id HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- For a refund that the provider rejected, and for one that waits for an operator.
-- +goose StatementBegin
CREATE FUNCTION refunds_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM emit_webhooks(ARRAY[p.client], ARRAY['refund.failed'], ARRAY[NEW.id], ARRAY[NULL]::bigint[], ARRAY[NEW.campaign_id])
    FROM purchases p WHERE p.id = NEW.purchase_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Commands complete in their response: only the jobs of workers have events.
-- +goose StatementBegin
CREATE FUNCTION jobs_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhook_endpoints) THEN
        RETURN NULL;
    END IF;
    PERFORM emit_webhooks(array_agg(n.client), array_agg('job.failed'::text), array_agg(n.id), array_agg(NULL::bigint), array_agg(n.campaign_id))
    FROM new_rows n
    WHERE n.state = 'failed' AND n.kind IN ('purchase', 'cancellation', 'draw', 'campaign-cancellation')
      AND n.id NOT IN (SELECT id FROM old_rows WHERE state = 'failed') HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION wallets_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhook_endpoints) THEN
        RETURN NULL;
    END IF;
    PERFORM emit_webhooks(array_agg(w.client), array_agg('wallet.' || e.kind), array_agg(n.wallet_id), array_agg(n.version), array_agg(NULL::uuid))
    FROM new_rows n JOIN ledger_entries e ON e.id = n.entry_id JOIN wallets w ON w.id = n.wallet_id HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- A new, enabled, changed or released endpoint may have due deliveries. Deliveries that became due
-- during a lease are found now, because the check follows the commit that releases it.
-- +goose StatementBegin
CREATE FUNCTION webhook_endpoints_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM webhooks_due(ARRAY[NEW.id]);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Dropped in lock order.
CREATE TRIGGER campaigns_emit_webhooks AFTER UPDATE OF state, paused_at ON campaigns
    FOR EACH ROW WHEN (NEW.state <> OLD.state OR (NEW.paused_at IS NULL) <> (OLD.paused_at IS NULL)) EXECUTE FUNCTION campaigns_emit_webhooks();
CREATE TRIGGER new_refunds_emit_webhooks AFTER INSERT ON refunds
    FOR EACH ROW WHEN (NEW.state IN ('failed', 'canceled')) EXECUTE FUNCTION refunds_emit_webhooks();
CREATE TRIGGER failed_refunds_emit_webhooks AFTER UPDATE OF state, stuck ON refunds
    FOR EACH ROW WHEN (NEW.stuck AND NOT OLD.stuck OR NEW.state IN ('failed', 'canceled') AND OLD.state NOT IN ('failed', 'canceled'))
    EXECUTE FUNCTION refunds_emit_webhooks();
CREATE TRIGGER disputes_emit_webhooks AFTER INSERT OR UPDATE ON disputes FOR EACH ROW EXECUTE FUNCTION disputes_emit_webhooks();
CREATE TRIGGER freezes_emit_webhooks AFTER INSERT ON freezes FOR EACH ROW EXECUTE FUNCTION freezes_emit_webhooks();
CREATE TRIGGER draw_voids_emit_webhooks AFTER INSERT ON draw_voids FOR EACH ROW EXECUTE FUNCTION draw_voids_emit_webhooks();
CREATE TRIGGER holds_emit_webhooks AFTER INSERT ON holds
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holds_emit_webhooks();
CREATE TRIGGER ended_holds_emit_webhooks AFTER UPDATE ON holds
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holds_emit_webhooks();
CREATE TRIGGER purchases_emit_webhooks AFTER INSERT ON purchases
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION purchases_emit_webhooks();
CREATE TRIGGER changed_purchases_emit_webhooks AFTER UPDATE ON purchases
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION purchases_emit_webhooks();
CREATE TRIGGER wallets_emit_webhooks AFTER INSERT ON wallet_events
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION wallets_emit_webhooks();
CREATE TRIGGER failed_jobs_emit_webhooks AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION jobs_emit_webhooks();
CREATE TRIGGER new_webhook_endpoints_due AFTER INSERT ON webhook_endpoints
    FOR EACH ROW EXECUTE FUNCTION webhook_endpoints_due();
CREATE TRIGGER webhook_endpoints_due AFTER UPDATE OF version, wakes ON webhook_endpoints
    FOR EACH ROW WHEN (NEW.lease_until IS NULL AND NEW.disabled_at IS NULL AND NEW.deleted_at IS NULL AND NEW.paused_until IS NULL)
    EXECUTE FUNCTION webhook_endpoints_due();

-- +goose Down
DROP TRIGGER campaigns_emit_webhooks ON campaigns;
DROP TRIGGER new_refunds_emit_webhooks ON refunds;
DROP TRIGGER failed_refunds_emit_webhooks ON refunds;
DROP TRIGGER disputes_emit_webhooks ON disputes;
DROP TRIGGER draw_voids_emit_webhooks ON draw_voids;
DROP TRIGGER freezes_emit_webhooks ON freezes;
DROP TRIGGER holds_emit_webhooks ON holds;
DROP TRIGGER ended_holds_emit_webhooks ON holds;
DROP TRIGGER purchases_emit_webhooks ON purchases;
DROP TRIGGER changed_purchases_emit_webhooks ON purchases;
DROP TRIGGER wallets_emit_webhooks ON wallet_events;
DROP TRIGGER failed_jobs_emit_webhooks ON jobs;
DROP TRIGGER new_webhook_endpoints_due ON webhook_endpoints;
DROP TRIGGER webhook_endpoints_due ON webhook_endpoints;
DROP FUNCTION campaigns_emit_webhooks, holds_emit_webhooks, purchases_emit_webhooks, wallets_emit_webhooks, jobs_emit_webhooks;
DROP FUNCTION draw_voids_emit_webhooks, freezes_emit_webhooks, disputes_emit_webhooks, refunds_emit_webhooks;
DROP FUNCTION webhook_endpoints_due;
DROP FUNCTION emit_webhooks;
DROP FUNCTION webhooks_due;
DROP FUNCTION webhook_wanted, webhook_event_id;
DROP TABLE webhook_attempts, webhook_deliveries, webhook_events, webhook_secrets, webhook_endpoints;
