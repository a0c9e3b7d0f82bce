#!/bin/sh
# Runs, with the race detector, the tests of all packages that have concurrency of their own:
# those whose product code starts goroutines, or uses channels, locks or atomics, and those
# whose tests race with each other on purpose. `make race` calls it, with what the tests need.
set -eu
cd "$(dirname "$0")/.."

own=$(grep -rlE --include='*.go' --exclude='*_test.go' \
    '^[[:space:]]*go [a-zA-Z]|"sync"|"sync/atomic"|"golang.org/x/sync|[^a-z]chan ' internal | xargs dirname)
raced="internal/maintenance/recovery internal/platform/idempotency internal/platform/postgres internal/platform/ratelimit
    internal/platform/webhookhttp internal/service/calloff internal/service/sale"
go test -tags failpoint -race -vet=off -p 3 -parallel 4 -timeout 30m ./internal/entry/httpapi $(printf './%s\n' $own $raced | sort -u)
cd client && go test -race -vet=off ./...
