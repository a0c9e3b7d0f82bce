#!/bin/sh
# Fails with a clear message when Go is missing or older than go.mod requires. (Go
# 1.21 and newer download the version they need, unless that is disabled.)
set -eu

cd "$(dirname "$0")/.."
needed=$(sed -n 's/^go //p' go.mod)

if ! command -v go >/dev/null; then
    echo "Go $needed or newer is needed, and there is no go in PATH. Install it from https://go.dev/dl/" >&2
    exit 1
fi
if ! reason=$(go list -m 2>&1 >/dev/null); then
    echo "Go $needed or newer is needed; this is $(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || go version). Install it from https://go.dev/dl/" >&2
    echo "$reason" >&2
    exit 1
fi
