-- +goose Up

-- Commands are named by a noun and a verb, all of them. Not in the transaction that
-- renames the outbox: nothing could be accepted until all of these rows are written.
UPDATE jobs SET kind = k.after
FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
             ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
             ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
             ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
WHERE kind = k.before;

-- +goose Down

UPDATE jobs SET kind = k.before
FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
             ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
             ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
             ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
WHERE kind = k.after;
