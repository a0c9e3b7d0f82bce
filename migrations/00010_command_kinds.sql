-- +goose NO TRANSACTION
-- +goose Up

-- The names of all commands are a noun and a verb. A thousand rows at a time: a
-- request that repeats one of these commands waits for the row, and must not wait
-- for all of them.
-- +goose StatementBegin
DO $$
DECLARE
    done uuid := '00000000-0000-0000-0000-000000000000';
    upto uuid;
BEGIN
    LOOP
        SELECT id INTO upto FROM (SELECT id FROM jobs WHERE id > done ORDER BY id LIMIT 1000) AS chunk ORDER BY id DESC LIMIT 1;
        EXIT WHEN upto IS NULL;
        UPDATE jobs SET kind = k.after
        FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
                     ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
                     ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
                     ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
        WHERE id > done AND id <= upto AND kind = k.before;
        COMMIT;
        done := upto;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- keeps: a kind is renamed, and nothing else of a job
-- +goose StatementBegin
DO $$
DECLARE
    done uuid := '00000000-0000-0000-0000-000000000000';
    upto uuid;
BEGIN
    LOOP
        SELECT id INTO upto FROM (SELECT id FROM jobs WHERE id > done ORDER BY id LIMIT 1000) AS chunk ORDER BY id DESC LIMIT 1;
        EXIT WHEN upto IS NULL;
        UPDATE jobs SET kind = k.before
        FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
                     ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
                     ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
                     ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
        WHERE id > done AND id <= upto AND kind = k.after;
        COMMIT;
        done := upto;
    END LOOP;
END
$$;
-- +goose StatementEnd
