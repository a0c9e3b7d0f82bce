#!/bin/sh
# Compares the contract with that of a commit, and refuses breaks that api/breaking.yaml does not
# list with their reasons, and entries that are of no break. What is missing is printed as the file
# has it. With a commit as argument it reports all changes since then, and refuses nothing.
#
#   tools/contract-changes.sh [commit]
set -eu
cd "$(dirname "$0")/.."

since=${1:-$(sed -n 's/^since: *//p' api/breaking.yaml)}
before=$(mktemp)
found=$(mktemp)
trap 'rm -f "$before" "$found"' EXIT
if ! git show "$since:api/openapi.yaml" >"$before" 2>/dev/null; then
    echo "the contract of $since is not in this clone (a shallow one?): nothing was compared"
    exit 0
fi
oasdiff="go tool -modfile=tools/oasdiff/go.mod oasdiff"
if [ $# -gt 0 ]; then
    $oasdiff changelog "$before" api/openapi.yaml
    exit 0
fi
$oasdiff breaking -f json "$before" api/openapi.yaml >"$found"
go -C tools run ./breaking <"$found"
