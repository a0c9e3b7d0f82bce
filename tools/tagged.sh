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
tools=$PWD/tools/go.mod

# run tests those of FILES in the module of the current folder.
run() {
    files=$1
    shift
    [ -n "$files" ] || return 0
    names=$(sed -nE 's/^func ((Test|Fuzz|Example)[A-Za-z0-9_]*)\(.*/\1/p' $files | sort -u | paste -sd '|' -)
    go tool -modfile="$tools" gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped -- \
        -tags "failpoint $tag" -vet=off -count=1 -timeout 120m -run "^($names)\$" "$@" $(dirname $files | sort -u | sed 's|^|./|')
}

files=$(grep -rlE --include='*_test.go' --exclude-dir=node_modules "^//go:build (.*[ (])?$tag([ )]|\$)" .)
run "$(printf '%s\n' $files | sed '\#^./draw/#d')" "$@"
cd draw # a module of its own
run "$(printf '%s\n' $files | sed -n 's#^./draw/#./#p')" "$@"
