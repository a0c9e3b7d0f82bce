#!/bin/sh
# Runs, with the race detector, the tests of all packages that have concurrency of their own:
# those whose code starts goroutines, or uses channels, locks or atomics, and those whose tests
# do so. `make race` calls it, with what the tests need.
set -eu
cd "$(dirname "$0")/.."

files=$(grep -rlE --include='*.go' \
    '^[[:space:]]*go [a-zA-Z]|"sync"|"sync/atomic"|"golang.org/x/sync|[^a-z]chan ' internal devkit sandbox)
packages=$(dirname $files | sort -u | sed 's|^|./|')
go test -tags failpoint -race -vet=off -count=1 -p 3 -parallel 4 -timeout 60m ./internal/entry/httpapi $packages
(cd draw && go test -race -vet=off -count=1 ./verify)
cd client && go test -race -vet=off -count=1 ./...
