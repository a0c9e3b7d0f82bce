-- loses: payment_events_listed, payment_events, disputes, refunds, payment_steps, payments
-- +goose Up

-- A payment at a provider, of one purchase. due_at is the time of its next check. Every write
-- compares and increments the version, so a worker that resumes after a pause writes nothing.
CREATE TABLE payments (
    purchase_id    uuid        PRIMARY KEY,                                -- its job has the same id
    campaign_id    uuid        NOT NULL,                                   -- no foreign key: see campaigns
    amount         bigint      NOT NULL CHECK (amount > 0),                -- minor units
    currency       text        NOT NULL,
    payment_method text        NOT NULL CHECK (char_length(payment_method) BETWEEN 1 AND 255), -- pm_… of the provider
    return_url     text        CHECK (char_length(return_url) <= 2000),    -- where an authentication ends
    phase          text        NOT NULL DEFAULT 'reserved'
                               CHECK (phase IN ('reserved', 'creating', 'confirming', 'action', 'declined', 'processing', 'capturing', 'captured',
                                                'expiring', 'late', 'ended', 'settled', 'refund_due', 'cancelled')),
    version        bigint      NOT NULL DEFAULT 0,                         -- fencing: incremented with every lease and every write
    lease_until    timestamptz,                                            -- until then a worker has it
    due_at         timestamptz,                                            -- its next check; null: none before an event arrives
    wakes          integer     NOT NULL DEFAULT 0,                         -- incremented with every event about it
    deadline       timestamptz NOT NULL,                                   -- of the reservation
    latest         timestamptz NOT NULL,                                   -- no extension goes beyond
    awaits_until   timestamptz,                                            -- the buyer's deadline: the end of the sale plus payments.after_sale_end; null: the sale has no end
    declined_until timestamptz,                                            -- after a decline, until when another payment method is accepted
    over_at        timestamptz NOT NULL GENERATED ALWAYS AS (CASE phase WHEN 'action' THEN least(deadline, awaits_until)
                               WHEN 'declined' THEN least(deadline, awaits_until, declined_until) ELSE deadline END) STORED, -- when it expires
    kept_since     timestamptz NOT NULL,                                   -- start of its user's time with the positions, including the hold, without extensions: it moves with the deadline
    attempt        smallint    NOT NULL DEFAULT 0,                         -- at creating the intent; the last part of its idempotency key
    attempt_at     timestamptz,                                            -- when that key was stored
    tries          smallint    NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 4), -- with payment methods other than the first
    intent_id      text        UNIQUE,
    intent_status  text,                                                   -- as last fetched
    livemode       boolean,                                                -- as last fetched; false: no money moves
    received       bigint      NOT NULL DEFAULT 0 CHECK (received >= 0),   -- captured, as last fetched
    next_action    text,                                                   -- where the buyer authenticates
    ending         text        CHECK (ending IN ('expired', 'declined', 'refused', 'cancelled', 'campaign-cancelled', 'unpaid')), -- why it is cancelled
    uncancellable  boolean     NOT NULL DEFAULT false,                     -- the provider rejected the cancellation: it may still be paid
    decline        json,                                                   -- {code, decline_code, advice, message}
    cancel_job     uuid,                                                   -- the cancellation job that ends with it
    cancelled_by   text,
    cancel_reason  text        CHECK (char_length(cancel_reason) <= 500),
    faults         integer     NOT NULL DEFAULT 0,                         -- consecutive failed attempts that are not its own fault
    waiting_for    text        CHECK (waiting_for IN ('operator', 'key', 'answer', 'provider', 'turn')), -- what it waits for, beside its buyer or a deadline
    waiting_since  timestamptz,                                            -- since when the provider has not responded, or the key is missing
    last_error     text,                                                   -- the provider's message when the wait began, for operators
    resolved_as    text        CHECK (resolved_as IN ('paid', 'unpaid', 'paid-out-of-band')), -- by an operator, by hand
    resolved_by    text,
    resolve_reason text        CHECK (char_length(resolve_reason) BETWEEN 1 AND 500),
    resolve_reference text     CHECK (char_length(resolve_reference) BETWEEN 1 AND 255), -- of money that was paid out of band
    paid           bigint      NOT NULL GENERATED ALWAYS AS (CASE resolved_as WHEN 'paid-out-of-band' THEN amount ELSE received END) STORED,
    disputed_at    timestamptz,
    dispute        json,                                                   -- {id, status, reason, refundable, amount, currency, fee, fee_currency, opened_at, closed_at} of its relevant dispute
    amount_disputed bigint     NOT NULL DEFAULT 0 CHECK (amount_disputed >= 0), -- of its lost disputes in its currency
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at    timestamptz,
    CHECK (deadline <= latest),
    CHECK ((waiting_for IS NULL) = (waiting_since IS NULL) OR waiting_for IS NOT DISTINCT FROM 'operator'), -- for an operator, waiting_since may be null
    CHECK (phase <> 'declined' OR declined_until IS NOT NULL AND decline IS NOT NULL),
    CHECK (phase NOT IN ('confirming', 'action', 'declined', 'processing', 'capturing', 'captured', 'settled', 'refund_due', 'late') OR intent_id IS NOT NULL),
    CHECK (phase NOT IN ('expiring', 'late', 'ended', 'cancelled') OR ending IS NOT NULL),
    CHECK (phase NOT IN ('captured', 'settled', 'refund_due') OR paid = amount),
    CHECK ((attempt = 0) = (attempt_at IS NULL)),
    CHECK ((intent_status IS NULL) = (livemode IS NULL)),
    CHECK ((phase IN ('settled', 'refund_due', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((cancel_job IS NULL) OR (cancelled_by IS NOT NULL)),
    CHECK ((resolved_as IS NULL) = (resolved_by IS NULL) AND (resolved_as IS NULL) = (resolve_reason IS NULL)),
    CHECK ((resolved_as IS NOT DISTINCT FROM 'paid-out-of-band') = (resolve_reference IS NOT NULL))
) WITH (fillfactor = 70);

CREATE INDEX payments_due ON payments (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX payments_over ON payments (over_at) WHERE phase IN ('reserved', 'creating', 'confirming', 'action', 'declined', 'processing');
CREATE INDEX payments_open_of_campaign ON payments (campaign_id) WHERE finished_at IS NULL;
CREATE INDEX payments_in_queue ON payments (created_at) WHERE phase = 'reserved'; -- for the gauge of their wait for a worker
CREATE INDEX payments_waiting ON payments (purchase_id) WHERE waiting_for IS NOT NULL; -- lists and gauges
CREATE INDEX payments_to_escalate ON payments (waiting_since) WHERE waiting_for <> 'operator';

-- The steps of a payment and its refund, for the timeline.
CREATE TABLE payment_steps (
    purchase_id uuid        NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    number      bigint      GENERATED ALWAYS AS IDENTITY,                  -- orders steps with the same time
    event       text        NOT NULL,
    detail      text,
    declined_client text,                                                  -- of a decline: the client and user whose declines are counted
    declined_user text,
    PRIMARY KEY (purchase_id, number),
    CHECK (declined_user IS NULL OR event = 'declined'),
    CHECK ((declined_client IS NULL) = (declined_user IS NULL))
);

CREATE INDEX payment_steps_declines ON payment_steps (declined_client, declined_user, at) WHERE declined_user IS NOT NULL;

-- Refunds of purchases, by us or made at the provider by others. due_at, version and lease_until of
-- our card refunds work as those of payments.
CREATE TABLE refunds (
    id            uuid        PRIMARY KEY,
    purchase_id   uuid        NOT NULL,
    number        smallint    CHECK (number > 0),                          -- of our refunds of the purchase, from 1; null: made by others
    campaign_id   uuid        NOT NULL,
    user_id       text        NOT NULL,
    client        text,                                                    -- of the purchase, set by a trigger
    method        text        NOT NULL CHECK (method IN ('wallet', 'card', 'external')),
    amount        bigint      NOT NULL CHECK (amount >= 0),                -- minor units; 0: nothing was left to refund
    currency      text        NOT NULL,
    reason        text        NOT NULL CHECK (reason IN ('cancelled', 'campaign-cancelled', 'late-payment', 'out-of-band')),
    state         text        NOT NULL
                              CHECK (state IN ('open', 'pending', 'requires_action', 'succeeded', 'failed', 'canceled', 'listed', 'resolved')),
    version       bigint      NOT NULL DEFAULT 0,
    lease_until   timestamptz,
    due_at        timestamptz,
    wakes         integer     NOT NULL DEFAULT 0,
    attempt       smallint    NOT NULL DEFAULT 0,                          -- at creating it; the last part of its idempotency key
    attempt_at    timestamptz,
    asked         bigint,                                                  -- the amount of the stored attempt: amount may be lower now
    provider_id   text        UNIQUE,                                      -- re_… of the last attempt
    failure       text,                                                    -- why the provider rejected it
    faults        integer     NOT NULL DEFAULT 0,
    waiting_since timestamptz,                                             -- since when the provider has not responded, or the key is missing; null: it does not wait
    stuck         boolean     NOT NULL DEFAULT false,                      -- it continues only after an operator acts on it, or on the key
    resolved_by   text,                                                    -- the operator or app that resolved it
    resolve_reason text        CHECK (char_length(resolve_reason) BETWEEN 1 AND 500),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at   timestamptz,                                             -- when it succeeded or was resolved first: a later failure does not change a month that is over
    failed_at     timestamptz,                                             -- the last time, and when it was resolved; both set by triggers
    resolved_at   timestamptz,
    UNIQUE (purchase_id, number),
    CHECK (method <> 'wallet' OR state = 'succeeded'),
    CHECK (method <> 'external' OR state IN ('listed', 'resolved')),
    CHECK (method <> 'card' OR state <> 'listed'),
    CHECK (amount > 0 OR number IS NOT NULL AND state IN ('succeeded', 'resolved') AND method = 'card'),
    CHECK ((number IS NULL) = (reason = 'out-of-band')),
    CHECK (reason <> 'out-of-band' OR method = 'card' AND state NOT IN ('open', 'resolved') AND provider_id IS NOT NULL AND due_at IS NULL),
    CHECK (state <> 'succeeded' OR failure IS NULL),
    CHECK ((state = 'resolved') = (resolved_by IS NOT NULL)),
    CHECK ((resolved_by IS NULL) = (resolve_reason IS NULL)),
    CHECK (state NOT IN ('succeeded', 'resolved') OR finished_at IS NOT NULL),
    CHECK ((attempt = 0) = (attempt_at IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX refunds_due ON refunds (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX refunds_of_campaign ON refunds (campaign_id, id);
CREATE INDEX refunds_of_client ON refunds (campaign_id, client, id);
CREATE INDEX refunds_for_operator ON refunds (id) -- lists and gauges
    WHERE method = 'card' AND number IS NOT NULL AND (state IN ('failed', 'canceled') OR stuck AND state IN ('open', 'pending', 'requires_action'));
CREATE UNIQUE INDEX refunds_being_made ON refunds (purchase_id) WHERE state = 'open' AND attempt > 0; -- each is for what the others leave
CREATE INDEX refunds_to_escalate ON refunds (waiting_since)
    WHERE waiting_since IS NOT NULL AND NOT stuck AND method = 'card' AND number IS NOT NULL AND state IN ('open', 'pending', 'requires_action');

-- +goose StatementBegin
CREATE FUNCTION refunds_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.client := (SELECT client FROM purchases WHERE id = NEW.purchase_id);
    NEW.failed_at := CASE WHEN NEW.state IN ('failed', 'canceled') THEN clock_timestamp() END;
    RETURN NEW;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION refunds_dated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IN ('failed', 'canceled') THEN
        NEW.failed_at := clock_timestamp();
    ELSIF NEW.state = 'resolved' THEN
        NEW.resolved_at := coalesce(CASE WHEN OLD.finished_at IS NULL THEN NEW.finished_at END, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER refunds_dated BEFORE UPDATE OF state ON refunds FOR EACH ROW WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION refunds_dated();
-- How much of what is lost in disputes of a payment, and was given back, is the same money: what was resolved by hand since its first dispute, as
-- far as the buyer would otherwise have more than was paid.
-- +goose StatementBegin
CREATE FUNCTION overlap_of(y payments) RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT least(coalesce(sum(r.amount) FILTER (WHERE r.state = 'resolved' AND r.resolved_at > y.disputed_at), 0), y.amount_disputed,
                 greatest(coalesce(sum(r.amount), 0) + y.amount_disputed - y.paid, 0))::bigint
    FROM refunds r WHERE r.purchase_id = y.purchase_id AND r.state IN ('succeeded', 'resolved');
END;
-- +goose StatementEnd
CREATE TRIGGER refunds_client BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION refunds_client();

-- The disputes of payments, each as the provider had it when it was asked last. An inquiry can become a
-- dispute, even after it was closed. An unknown status counts as an open dispute.
CREATE TABLE disputes (
    id          text        PRIMARY KEY,                                   -- of the provider
    purchase_id uuid        NOT NULL REFERENCES payments ON DELETE CASCADE,
    status      text        NOT NULL,
    reason      text        NOT NULL,
    refundable  boolean     NOT NULL,                                      -- the bank does not have the money
    lost        boolean     NOT NULL,                                      -- the buyer has the money, for good
    opened_at   timestamptz NOT NULL DEFAULT clock_timestamp(),            -- when it was recorded first, by our clock
    closed_at   timestamptz,                                               -- when its present end was recorded; null: it is open
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    amount      bigint      NOT NULL CHECK (amount >= 0),                  -- minor units
    currency    text        NOT NULL,
    fee         bigint      NOT NULL,                                      -- the provider's fee, minor units; 0: none yet
    fee_currency text       NOT NULL,                                      -- of the provider's balance; empty without a fee
    closed      boolean     NOT NULL GENERATED ALWAYS AS (status IN ('warning_closed', 'won', 'lost', 'prevented')) STORED,
    CHECK (closed = (closed_at IS NOT NULL))
);

CREATE INDEX disputes_of_purchase ON disputes (purchase_id);

-- The events of the provider, each stored once, in any order.
CREATE TABLE payment_events (
    id          text        PRIMARY KEY,                                   -- evt_… of the provider
    type        text        NOT NULL,
    api_version text,
    created_at  timestamptz NOT NULL,                                      -- by the provider's clock
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    source      text        NOT NULL CHECK (source IN ('webhook', 'list')),
    object_id   text,
    intent_id   text,
    purchase_id uuid,                                                      -- in the object's metadata
    status      text,                                                      -- of the object at the time of the event
    payload     text        NOT NULL,
    handled_at  timestamptz,
    outcome     text        CHECK (outcome IN ('woken', 'recorded', 'ignored', 'uncaptured', 'unknown')),
    CHECK ((handled_at IS NULL) = (outcome IS NULL))
);

CREATE INDEX payment_events_open ON payment_events (received_at) WHERE handled_at IS NULL;
CREATE INDEX payment_events_received ON payment_events (received_at);
CREATE INDEX payment_events_uncaptured ON payment_events (intent_id) WHERE outcome = 'uncaptured'; -- processed again when the capture of the intent is recorded

-- Until when events were listed: the creation time of the newest one, by the provider's clock. At most one row.
CREATE TABLE payment_events_listed (
    one      boolean     PRIMARY KEY DEFAULT true CHECK (one),
    until    timestamptz NOT NULL,
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp()                -- last change of until, by our clock
);

-- +goose Down
DROP FUNCTION overlap_of;
DROP TABLE payment_events_listed, payment_events, disputes, refunds, payment_steps, payments;
DROP FUNCTION refunds_client, refunds_dated;
