-- loses: book_periods, book_facts
-- +goose Up

-- Months (or other periods) of the books: being closed, or closed. The first one fixes the zone and when sales are earned.
CREATE TABLE book_periods (
    name       text        PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 50), -- 2026-11
    starts_at  timestamptz NOT NULL UNIQUE,
    ends_at    timestamptz NOT NULL UNIQUE CHECK (ends_at > starts_at),    -- not included
    zone       text        NOT NULL,                                       -- IANA
    earned_at  text        NOT NULL CHECK (earned_at IN ('result', 'sale_end')), -- when the sales of a campaign are earned
    numbers    json        NOT NULL,                                       -- {account: the company's number}
    opening    json        NOT NULL,                                       -- [{account, currency, amount}]: debit balances at its start
    open       json        NOT NULL,                                       -- [{kind, id, state, amount, currency}]: what was carried as open
    closed_by  text        NOT NULL,                                       -- role:client
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    fence      xid8,                                                       -- transactions that are older must end first; null: the row was just committed
    done_until timestamptz NOT NULL,                                       -- what is before it is read: it is in progress or, before the start of the first period, in opening
    progress   json        NOT NULL,                                       -- {entries, totals, hash: the state of SHA-256, after: the last entry that was read of a day that is read in part}
    closed_at  timestamptz,                                                -- null: it is being closed
    entries    bigint,
    hash       bytea       CHECK (octet_length(hash) = 32),                -- SHA-256 of the journal as CSV with commas
    statement  json,                                                       -- the sums
    CHECK (done_until <= ends_at),
    CHECK ((closed_at IS NULL) = (hash IS NULL) AND (hash IS NULL) = (statement IS NULL) AND (hash IS NULL) = (entries IS NULL)),
    CHECK (closed_at IS NULL OR done_until = ends_at)
);
CREATE UNIQUE INDEX book_periods_closing ON book_periods ((true)) WHERE closed_at IS NULL; -- one at a time

CREATE TRIGGER periods_stay_closed BEFORE UPDATE OR DELETE ON book_periods
    FOR EACH ROW WHEN (OLD.closed_at IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER periods_are_never_emptied BEFORE TRUNCATE ON book_periods FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Dated facts of money whose rows are overwritten: what is received of a payment, refunds, disputes, the provider's
-- balance. Each debits an account and credits another. The triggers below append them in the transaction of the
-- change. Sales by wallet and outside, and the entries of wallets, are read from their own rows, unless those have an
-- id whose time is another one.
CREATE TABLE book_facts (
    day         date        NOT NULL,                                      -- UTC, of at
    kind        text        NOT NULL COLLATE "C",                          -- of the document
    document_id text        NOT NULL COLLATE "C",
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL,                                      -- when it was recorded; the provider's time where the period is open
    debit       text        NOT NULL,                                      -- accounts; unearned is sales once the campaign's sales are earned
    credit      text        NOT NULL CHECK (credit <> debit),
    amount      bigint      NOT NULL CHECK (amount > 0),                   -- minor units
    currency    text        NOT NULL,
    purchase_id uuid,
    campaign_id uuid,
    method      text,                                                      -- of the purchase
    adjusts     text,                                                      -- the document of a closed period that it is about
    PRIMARY KEY (day, kind, document_id, id)
);
CREATE INDEX book_facts_of_purchase ON book_facts (purchase_id) WHERE purchase_id IS NOT NULL;
CREATE TRIGGER facts_are_append_only BEFORE UPDATE OR DELETE ON book_facts FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER facts_are_never_emptied BEFORE TRUNCATE ON book_facts FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- How many seconds a moment is from the time in an id (UUIDv7).
CREATE FUNCTION seconds_from_id(id uuid, at timestamptz) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN extract(epoch FROM at AT TIME ZONE 'UTC') - ('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0;

-- Appends a fact. A negative amount exchanges the sides; of 0 there is none. A fact that is dated in a closed period (or in one that
-- is being closed) is booked at the present, and adjusts its document. One about a purchase that was sold in a closed period adjusts that purchase.
-- +goose StatementBegin
CREATE FUNCTION append_fact(kind text, document text, at timestamptz, purchase uuid, debit text, credit text, amount bigint, currency text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(amount, 0) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency, purchase_id, campaign_id, method, adjusts)
    SELECT (f.at AT TIME ZONE 'UTC')::date, append_fact.kind, document, f.at, CASE WHEN append_fact.amount > 0 THEN append_fact.debit ELSE append_fact.credit END,
           CASE WHEN append_fact.amount > 0 THEN append_fact.credit ELSE append_fact.debit END, abs(append_fact.amount), append_fact.currency, purchase, s.campaign_id,
           CASE append_fact.kind WHEN 'ledger_entry' THEN 'wallet' ELSE s.payment_method END,
           CASE WHEN append_fact.at < c.closed THEN document WHEN purchase IS NOT NULL AND c.closed IS NOT NULL AND least((
               SELECT min(o.at) FROM book_facts o WHERE o.purchase_id = purchase AND o.kind = 'payment'), CASE WHEN s.payment_method <> 'card' THEN s.completed_at END) < c.closed THEN purchase::text END
    FROM (SELECT max(ends_at) AS closed FROM book_periods) c
    CROSS JOIN LATERAL (SELECT CASE WHEN append_fact.at < c.closed THEN greatest(clock_timestamp(), c.closed) ELSE append_fact.at END AS at OFFSET 0) f -- this server's clock may be behind
    LEFT JOIN purchases s ON s.id = purchase;
END $$;
-- +goose StatementEnd

-- A sale by wallet or outside whose job is old: its id does not find it.
-- +goose StatementBegin
CREATE FUNCTION append_late_sale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_fact('purchase', NEW.id::text, NEW.completed_at, NEW.id, CASE NEW.payment_method WHEN 'wallet' THEN 'wallet_liability' ELSE 'cash_outside' END,
                        'unearned', NEW.amount, NEW.currency);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER late_sales_are_facts AFTER INSERT ON purchases FOR EACH ROW
    WHEN (NEW.payment_method <> 'card' AND abs(seconds_from_id(NEW.id, NEW.completed_at)) >= 3600) EXECUTE FUNCTION append_late_sale();

-- The same of an entry of a wallet.
-- +goose StatementBegin
CREATE FUNCTION append_late_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_fact('ledger_entry', NEW.id::text, NEW.created_at, NULL, CASE WHEN NEW.debit_wallet IS NULL THEN 'cash_outside' ELSE 'wallet_liability' END,
                        CASE WHEN NEW.credit_wallet IS NULL THEN 'cash_outside' ELSE 'wallet_liability' END, NEW.amount, NEW.currency);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER late_entries_are_facts AFTER INSERT ON ledger_entries FOR EACH ROW
    WHEN (NEW.kind IN ('credit', 'debit', 'capture') AND abs(seconds_from_id(NEW.id, NEW.created_at)) >= 3600) EXECUTE FUNCTION append_late_entry();

-- What a payment has received, at the provider or by hand.
-- +goose StatementBegin
CREATE FUNCTION append_payment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_fact('payment', NEW.purchase_id::text, clock_timestamp(), NEW.purchase_id, 'receivable', 'unearned', NEW.received - OLD.received, NEW.currency);
    IF NEW.paid - OLD.paid <> NEW.received - OLD.received THEN
        PERFORM append_fact('payment', NEW.purchase_id::text, clock_timestamp(), NEW.purchase_id, 'cash_outside', 'unearned',
                            (NEW.paid - OLD.paid) - (NEW.received - OLD.received), NEW.currency);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER payments_are_facts AFTER UPDATE OF received, resolved_as ON payments FOR EACH ROW
    WHEN (NEW.received <> OLD.received OR NEW.paid <> OLD.paid) EXECUTE FUNCTION append_payment();

-- What was disputed and resolved by hand, and is the same money, left by the bank, and not outside.
-- +goose StatementBegin
CREATE FUNCTION append_overlap(purchase uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_fact('payment', purchase::text, clock_timestamp(), purchase, 'cash_outside', 'disputes', overlap_of(y) - (
               SELECT coalesce(sum(CASE 'disputes' WHEN f.credit THEN f.amount WHEN f.debit THEN -f.amount END), 0) FROM book_facts f
               WHERE f.purchase_id = purchase AND f.kind = 'payment')::bigint, y.currency)
    FROM payments y WHERE y.purchase_id = purchase AND y.disputed_at IS NOT NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION append_payment_overlap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_overlap(NEW.purchase_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER overlaps_are_facts AFTER UPDATE OF amount_disputed ON payments FOR EACH ROW
    WHEN (NEW.amount_disputed <> OLD.amount_disputed) EXECUTE FUNCTION append_payment_overlap();

-- A refund of ours is payable from its request on, and is paid when it has succeeded or was made by hand; one by wallet is
-- both at once. One that others have made at the provider counts when it has succeeded.
-- +goose StatementBegin
CREATE FUNCTION append_refund() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was     bigint := CASE WHEN TG_OP = 'UPDATE' THEN OLD.amount ELSE 0 END;
    was_in  text   := CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END;
    by_card bigint := CASE WHEN NEW.method = 'card' AND NEW.state = 'succeeded' THEN NEW.amount ELSE 0 END
                      - CASE WHEN NEW.method = 'card' AND was_in = 'succeeded' THEN was ELSE 0 END;
    outside bigint := CASE WHEN NEW.state = 'resolved' THEN NEW.amount ELSE 0 END - CASE WHEN was_in = 'resolved' THEN was ELSE 0 END;
BEGIN
    IF NEW.number IS NULL THEN
        PERFORM append_fact('refund', NEW.id::text, clock_timestamp(), NEW.purchase_id, 'unearned', 'receivable', by_card, NEW.currency);
        PERFORM append_overlap(NEW.purchase_id);
        RETURN NULL;
    END IF;
    PERFORM append_fact('refund', NEW.id::text, clock_timestamp(), NEW.purchase_id, 'unearned',
                        CASE NEW.method WHEN 'wallet' THEN 'wallet_liability' ELSE 'refunds_payable' END, NEW.amount - was, NEW.currency);
    PERFORM append_fact('refund', NEW.id::text, clock_timestamp(), NEW.purchase_id, 'refunds_payable', 'receivable', by_card, NEW.currency);
    PERFORM append_fact('refund', NEW.id::text, clock_timestamp(), NEW.purchase_id, 'refunds_payable', 'cash_outside', outside, NEW.currency);
    IF NEW.method = 'card' THEN
        PERFORM append_overlap(NEW.purchase_id);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER new_refunds_are_facts AFTER INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION append_refund();
CREATE TRIGGER refunds_are_facts AFTER UPDATE OF amount, state ON refunds FOR EACH ROW
    WHEN (NEW.amount <> OLD.amount OR NEW.state <> OLD.state) EXECUTE FUNCTION append_refund();

-- What a bank has taken for a dispute: while it is open, as the charge is not refundable; and when it is lost. An inquiry takes nothing, nor does a dispute
-- that was prevented; both can be without a refund too.
CREATE FUNCTION taken(d disputes) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN d.lost OR NOT d.refundable AND d.status NOT LIKE 'warning%' AND d.status <> 'prevented' THEN d.amount ELSE 0 END;

-- The bank has the money of a dispute until it is won; the fee stays.
-- +goose StatementBegin
CREATE FUNCTION append_dispute() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.currency, OLD.fee_currency) = (NEW.currency, NEW.fee_currency) THEN
        PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'disputes', 'receivable', taken(NEW) - taken(OLD), NEW.currency);
        PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'fees', 'receivable', NEW.fee - OLD.fee, NEW.fee_currency);
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'disputes', 'receivable', -taken(OLD), OLD.currency);
        PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'fees', 'receivable', -OLD.fee, OLD.fee_currency);
    END IF;
    PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'disputes', 'receivable', taken(NEW), NEW.currency);
    PERFORM append_fact('dispute', NEW.id, clock_timestamp(), NEW.purchase_id, 'fees', 'receivable', NEW.fee, NEW.fee_currency);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER disputes_are_facts AFTER INSERT OR UPDATE ON disputes FOR EACH ROW EXECUTE FUNCTION append_dispute();

-- The provider's fees and payouts, what else changes the balance, and the exchange into its currency. The money of
-- payments, refunds and disputes, and the fees of disputes, are in their own facts.
-- +goose StatementBegin
CREATE FUNCTION append_balance_transaction() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_purchase uuid := (SELECT purchase_id FROM payments WHERE intent_id = NEW.intent_id);
    account     text := CASE WHEN NEW.reporting_category IN ('charge', 'refund', 'refund_failure', 'dispute', 'dispute_reversal') THEN NULL
                             WHEN NEW.reporting_category IN ('payout', 'payout_reversal') THEN 'bank'
                             WHEN NEW.reporting_category IN ('fee', 'network_cost', 'tax') THEN 'fees' ELSE 'provider_adjustments' END;
BEGIN
    PERFORM append_fact('balance_transaction', NEW.id, NEW.created_at, of_purchase, account, 'receivable', -NEW.amount, NEW.currency) WHERE account IS NOT NULL;
    PERFORM append_fact('balance_transaction', NEW.id, NEW.created_at, of_purchase, 'fees', 'receivable', NEW.fee, NEW.currency)
        WHERE NEW.reporting_category NOT IN ('dispute', 'dispute_reversal');
    IF account IS NULL AND NEW.source_currency <> NEW.currency THEN
        PERFORM append_fact('balance_transaction', NEW.id, NEW.created_at, of_purchase, 'exchange', 'receivable',
                            CASE WHEN NEW.reporting_category IN ('refund', 'dispute') THEN -1 ELSE 1 END * abs(NEW.source_amount), NEW.source_currency);
        PERFORM append_fact('balance_transaction', NEW.id, NEW.created_at, of_purchase, 'receivable', 'exchange', NEW.amount, NEW.currency);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER balance_transactions_are_facts AFTER INSERT ON balance_transactions FOR EACH ROW EXECUTE FUNCTION append_balance_transaction();

-- +goose Down
DROP TRIGGER balance_transactions_are_facts ON balance_transactions;
DROP TRIGGER disputes_are_facts ON disputes;
DROP TRIGGER refunds_are_facts ON refunds;
DROP TRIGGER new_refunds_are_facts ON refunds;
DROP TRIGGER overlaps_are_facts ON payments;
DROP TRIGGER payments_are_facts ON payments;
DROP TRIGGER late_entries_are_facts ON ledger_entries;
DROP TRIGGER late_sales_are_facts ON purchases;
DROP FUNCTION append_balance_transaction, append_dispute, taken, append_refund, append_payment_overlap, append_overlap, append_payment, append_late_entry, append_late_sale;
DROP FUNCTION append_fact, seconds_from_id;
DROP TABLE book_facts, book_periods;
