#!/bin/sh
# What takes long by nature: property tests with many more cases, fuzzing, the crash tests
# again and again, random runs with cards, and a million old jobs deleted beside a sale. About 15 minutes on two
# cores. `make soak` calls it, with servers and binaries for the tests. It ends with the
# status of the first step that fails.
#
#   SOAK_CHECKS    cases of each property (500; `make test` tries 10)
#   SOAK_FUZZTIME  for each fuzz target (20s)
#   SOAK_ROUNDS    of the crash tests (3)
set -eu
cd "$(dirname "$0")/.."

step() {
    printf '\n== %s\n' "$*"
}

# tests FLAGS... runs tests and shows results only; the log of a failed run is shown in full.
tests() {
    log=$(mktemp)
    status=0
    go test -tags 'failpoint soak' -count=1 -timeout 20m "$@" >"$log" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        grep -E ' ms; ' "$log" || true # what was measured
        grep -E '^(ok|fuzz: elapsed.*execs)' "$log" | tail -n 1
    else
        cat "$log"
    fi
    rm -f "$log"
    return "$status"
}

# names FILES... prints a pattern of all tests in files.
names() {
    printf '^(%s)$' "$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' "$@" | paste -sd '|' -)"
}

# properties CASES FUNCTION runs the tests in files that call a function of package property.
properties() {
    export TRIPRIZE_TEST_CASES="$1"
    files=$(grep -rl --include='*_test.go' "\b$2(" internal)
    for package in $(dirname $files | sort -u); do
        tests -run "$(names $(printf '%s\n' $files | grep "^$package/[^/]*$"))" "./$package"
    done
}

step "properties: ${SOAK_CHECKS:=500} cases each"
properties "$SOAK_CHECKS" '\(property\|rapid\)\.C[a-z]*'

step "every flip of every byte"
properties 1000000 'property\.Sample'
unset TRIPRIZE_TEST_CASES

step "fuzzing: ${SOAK_FUZZTIME:=20s} for each target"
for file in $(grep -rl --include='*_test.go' '^func Fuzz' internal); do
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
        printf '%s: ' "$target"
        tests -run '^$' -fuzz "^$target\$" -fuzztime "$SOAK_FUZZTIME" "./$(dirname "$file")"
    done
done

step "crashes and outages: ${SOAK_ROUNDS:=3} rounds"
tests -run "$(names e2e/crash_test.go e2e/holds_crash_test.go e2e/holds_storm_test.go e2e/wallets_chaos_test.go e2e/outage_test.go)" -count="$SOAK_ROUNDS" ./e2e

step "cards: 20 random runs, and a worker killed or stopped at every step of a payment"
tests -run "$(names e2e/cards_crash_test.go e2e/cards_torture_test.go)" -parallel 4 ./e2e

step "a million old jobs beside a sale"
tests -run '^TestSoak' ./e2e

step "half a million positions: published, frozen, drawn and proven"
tests -v -run '^TestSoak' ./internal/service/proof

step "the soak has passed"
