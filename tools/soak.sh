#!/bin/sh
# What takes long by nature: crashes at many moments, attacks, crowds, random runs, whole days;
# properties with many more cases; fuzzing. `make soak` and `make soak-long` call it, with
# servers and binaries for the tests. It ends with the status of the first step that fails.
#
#   SOAK_ROUNDS    of the tests with the tag soak (1)
#   SOAK_FLAGS     of these tests; without -short they take every moment, and 20 seeds (-short)
#   SOAK_CASES     of each property (100; `make test` tries 10)
#   SOAK_FUZZTIME  inputs for each fuzz target (20000x): a number, as at the end of a time Go may give up a slow input
#   SOAK_FUZZ      of the build of fuzz targets; with "-fuzz ." coverage guides them, and all is built again for that
set -eu
cd "$(dirname "$0")/.."

step() {
    printf '\n== %s\n' "$*"
}

step "crashes, attacks, crowds and guides: ${SOAK_ROUNDS:=1} round(s) ${SOAK_FLAGS=-short}"
measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
GOTESTSUM_JSONFILE=$measured tools/tagged.sh soak -count="$SOAK_ROUNDS" -p 1 -parallel 4 $SOAK_FLAGS
sed -n 's/.*"Output":"\(.* ms; .*\)\\n".*/\1/p' "$measured"

if [ "$SOAK_ROUNDS" -gt 1 ]; then
    step "crashes that make test has too: $SOAK_ROUNDS rounds"
    go test -tags failpoint -vet=off -count="$SOAK_ROUNDS" -parallel 4 -timeout 120m ./e2e
fi

step "properties: ${SOAK_CASES:=100} cases each"
files=$(grep -rlE --include='*_test.go' '\bproperty\.(Check|Cases)\(' internal)
names=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $files | sort -u | paste -sd '|' -)
TRIPRIZE_TEST_CASES=$SOAK_CASES go test -tags failpoint -vet=off -count=1 -timeout 60m -run "^($names)\$" $(dirname $files | sort -u | sed 's|^|./|')

step "fuzzing: ${SOAK_FUZZTIME:=20000x} for each target"
built=$(mktemp -d)
trap 'rm -rf "$measured" "$built"' EXIT
corpus=$(go env GOCACHE)/fuzz
for package in $(dirname $(grep -rl --include='*_test.go' '^func Fuzz' internal draw) | sort -u); do
    go -C "$package" test -c -tags failpoint -vet=off ${SOAK_FUZZ:-} -o "$built/fuzz" .
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$package"/*_test.go); do
        printf '%s: ' "$target"
        (cd "$package" && "$built/fuzz" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$SOAK_FUZZTIME" -test.fuzzcachedir "$corpus/$package") >"$measured" 2>&1 ||
            { cat "$measured"; exit 1; }
        grep -E '^fuzz: elapsed.*execs' "$measured" | tail -n 1
    done
done

step "the soak has passed"
