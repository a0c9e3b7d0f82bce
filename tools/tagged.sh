#!/bin/sh
# Runs the tests in the files that have a build tag, in all packages, and no others:
#
#   tools/tagged.sh soak [flags of go test]
#
# So a file needs nothing but its tag, and none can be forgotten. `make web`, `make soak` and
# `make contract` call it, with what the tests need.
set -eu
cd "$(dirname "$0")/.."

tag=$1
shift
files=$(grep -rlE --include='*_test.go' --exclude-dir=node_modules "^//go:build (.*[ (])?$tag([ )]|\$)" .)
names=$(sed -nE 's/^func ((Test|Fuzz|Example)[A-Za-z0-9_]*)\(.*/\1/p' $files | sort -u | paste -sd '|' -)
exec go tool -modfile=tools/go.mod gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped -- \
    -tags "failpoint $tag" -vet=off -count=1 -run "^($names)\$" "$@" $(dirname $files | sort -u | sed 's|^|./|')
