-- loses: approval_movements, approvals
-- +goose Up

-- What operators have asked for and another person must approve. A row is made and ended in the transaction of the command
-- that says so; the idempotency key of the request is that of its job.
CREATE TABLE approvals (
    id           uuid        PRIMARY KEY,
    requester        text        NOT NULL,                                     -- the client of a key; of a person issuer and subject
    operation    text        NOT NULL,                                     -- as in approvals.required
    target       text        NOT NULL,                                     -- id of what it is about; of a new wallet its owner
    path         text        NOT NULL,                                     -- the request as it was sent, but for its headers
    body         bytea,                                                    -- canonical JSON; null: the sweep old-records has removed it
    requested_by json        NOT NULL,                                     -- as in the audit trail
    deciding     jsonb       NOT NULL,                                     -- members of the target: if one has changed, the request is outdated
    preview      json        NOT NULL,
    state        text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'rejected', 'outdated', 'expired', 'withdrawn')),
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL DEFAULT clock_timestamp() + interval '24 hours',
    decided_by   json,                                                     -- as in the audit trail; null: nobody
    decided_at   timestamptz,
    result       json,
    CHECK ((state = 'pending') = (decided_at IS NULL)),
    CHECK ((state IN ('approved', 'rejected', 'outdated', 'withdrawn')) = (decided_by IS NOT NULL)),
    CHECK (state IN ('approved', 'outdated') OR result IS NULL),
    CONSTRAINT approvals_are_by_another_person CHECK (state <> 'approved' OR decided_by ->> 'subject' IS NOT NULL
        AND (decided_by ->> 'issuer', decided_by ->> 'subject') IS DISTINCT FROM (requested_by ->> 'issuer', requested_by ->> 'subject'))
);
CREATE INDEX approvals_state ON approvals (state, id);
CREATE INDEX approvals_body ON approvals (decided_at) WHERE body IS NOT NULL;

CREATE TRIGGER approvals_stay_as_asked BEFORE UPDATE OF id, requester, operation, target, path, requested_by, deciding, preview, requested_at, expires_at ON approvals
    FOR EACH ROW WHEN (OLD.state = 'pending' OR NEW.body IS NOT NULL OR NEW.result IS NOT NULL OR NEW.preview::text <> '[]' OR NEW.deciding <> '{}' OR NEW.target <> OLD.target AND NEW.target NOT LIKE 'erased-%' OR (NEW.id, NEW.requester, NEW.operation, NEW.path, NEW.requested_at, NEW.expires_at,
        NEW.requested_by::text) IS DISTINCT FROM (OLD.id, OLD.requester, OLD.operation, OLD.path, OLD.requested_at, OLD.expires_at, (OLD.requested_by::jsonb - '{reason,target}'::text[])::text))
    EXECUTE FUNCTION refuse_change(); -- but for an erasure
CREATE TRIGGER approvals_keep_their_body BEFORE UPDATE OF body ON approvals FOR EACH ROW WHEN (OLD.state = 'pending' OR NEW.body IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER approvals_end_once BEFORE UPDATE OF state, decided_by, decided_at, result ON approvals
    FOR EACH ROW WHEN (NEW.state = 'pending' OR OLD.state <> 'pending' AND (NEW.state, NEW.decided_at, NEW.decided_by::text, NEW.result::text) IS DISTINCT FROM
        (OLD.state, OLD.decided_at, (OLD.decided_by::jsonb - '{reason,target}'::text[])::text, NULL)) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER approvals_are_kept BEFORE DELETE ON approvals FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER approvals_are_never_emptied BEFORE TRUNCATE ON approvals FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What a requester has moved at wallets of an owner: many amounts below a threshold are one above it. Kept for a day.
CREATE TABLE approval_movements (
    requester     text        NOT NULL,
    operation text        NOT NULL,
    owner     text        NOT NULL,                                        -- client and owner of the wallet
    currency  text        NOT NULL,
    amount    bigint      NOT NULL CHECK (amount > 0),                     -- minor units
    at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX approval_movements_of ON approval_movements (requester, owner, at);
CREATE INDEX approval_movements_at ON approval_movements (at);

-- The event goes to the endpoints of operators' clients only: what is asked is no app's business.
-- +goose StatementBegin
CREATE FUNCTION approvals_emit_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM emit_webhooks(array_agg(name), array_agg('approval.requested'::text), array_agg(NEW.id), array_agg(NULL::bigint), array_agg(NULL::uuid))
    FROM api_clients WHERE role = 'operator' AND EXISTS (SELECT FROM webhook_endpoints e WHERE e.client = name) HAVING count(*) > 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER approvals_emit_webhooks AFTER INSERT ON approvals FOR EACH ROW EXECUTE FUNCTION approvals_emit_webhooks();

-- +goose Down
DROP TABLE approval_movements, approvals;
DROP FUNCTION approvals_emit_webhooks;
