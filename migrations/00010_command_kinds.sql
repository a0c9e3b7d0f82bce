-- +goose Up

-- The names of all commands are a noun and a verb. This is not in the transaction
-- that renames the outbox: nothing could be accepted until all rows are written.
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
