#!/bin/sh
# Runs the tests with the tag ha, in namespaces of their own for networks, processes and mounts. When
# the first process ends, however it ends, the kernel ends all others and removes every namespace:
# nothing is left behind. Logs are in bin/ha/log. The arguments are flags of the test (-test.run …); with
# -test.short each group of incidents has the first two only. `tools/ha.sh possible` only tells whether it can run.
set -eu
cd "$(dirname "$0")/.."
fail() {
    echo "ha: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "network namespaces need root; run: sudo make ha"
unshare --mount --net --pid --fork ip link add br0 type bridge ||
    fail "this machine forbids network namespaces: they need CAP_SYS_ADMIN and CAP_NET_ADMIN (a container needs --privileged)"
[ "${1:-}" != possible ] || exit 0

export TRIPRIZE_TEST_HA_DIR=/tmp/triprize-ha # empty outside of the namespaces
mkdir -p $TRIPRIZE_TEST_HA_DIR bin/ha/log
rm -f bin/ha/log/*
go test -c -tags failpoint,ha -vet=off -o bin/ha/ha.test ./e2e/ha
setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc sh -euc '
    mkdir -p /run/netns
    mount -t tmpfs netns /run/netns # of ip netns
    mount -t tmpfs -o mode=755 data $TRIPRIZE_TEST_HA_DIR
    cp /etc/hosts $TRIPRIZE_TEST_HA_DIR/hosts
    mount --bind $TRIPRIZE_TEST_HA_DIR/hosts /etc/hosts # the test adds the names of its hosts
    cd e2e/ha
    ../../bin/ha/ha.test -test.timeout 40m "$@"
    exit $?' ha "$@" & # the shell stays: it is the parent of orphans
trap 'kill -KILL $!' HUP INT TERM
wait $!
[ $# != 0 ] || sed -i "s/^ha .*/ha $(date -u +%F) $(git rev-parse --short HEAD)/" tools/last-runs # a part is not the whole
