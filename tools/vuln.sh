#!/bin/sh
# Looks for known vulnerabilities in the dependencies of all modules, and of tools/npm. `make vuln` and
# .ci/run call it. Status 1: there are some; 2: somewhere nobody could be asked, mostly for want of a network.
set -u
cd "$(dirname "$0")/.."
status=0
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

# note remembers what a look has found: 1 wins over 2.
note() {
    case $1 in 1) status=1 ;; 2) [ "$status" = 1 ] || status=2; echo "vuln: NOT KNOWN for $2" >&2 ;; esac
}

GOBIN=$bin timeout 120 go install golang.org/x/vuln/cmd/govulncheck@v1.9.0 || note 2 "all modules"
for module in $(dirname go.mod */go.mod); do
    [ -x "$bin/govulncheck" ] || break
    (cd "$module" && timeout 120 "$bin/govulncheck" ./...)
    case $? in 0) ;; 3) note 1 ;; *) note 2 "$module" ;; esac # 3: it has found some
done
report=$(cd tools/npm && timeout 120 npm audit 2>&1) || case $report in *"npm audit report"*) note 1 ;; *) note 2 tools/npm ;; esac
printf '%s\n' "$report"
exit $status
