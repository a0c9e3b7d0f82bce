#!/bin/sh
# Reports how the contract has changed since a commit, and what of it breaks clients:
#
#   tools/contract-changes.sh [commit, by default the one before]
#
# Until version 1.0.0 is declared it refuses nothing.
set -eu
cd "$(dirname "$0")/.."

since=${1:-HEAD~1}
before=$(mktemp)
trap 'rm -f "$before"' EXIT
if ! git show "$since:api/openapi.yaml" >"$before" 2>/dev/null; then
    echo "the contract of $since is not here (a shallow clone?): there is nothing to compare"
elif cmp -s "$before" api/openapi.yaml; then
    echo "the contract is as in $since"
else
    go tool -modfile=tools/oasdiff/go.mod oasdiff changelog "$before" api/openapi.yaml
fi
