#!/bin/sh
# Runs the tests with the tag ha, in namespaces of their own for networks, processes and mounts. When
# the first process ends, however it ends, the kernel ends all others and removes every namespace:
# nothing is left behind. Logs are in bin/ha/log. The arguments are flags of the test (-test.run …); with
# -test.short each group of incidents has the first two only. `tools/ha.sh possible` only tells whether it can run.
# The group returns has a newer Patroni than Debian 12.
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

# newer_patroni puts Debian 13's Patroni, 4.0, into bin/ha/patroni: that of Debian 12 promotes an old primary that comes
# back (docs/availability.md). It needs what the older package has installed.
newer_patroni() {
    [ ! -e bin/ha/patroni/patroni ] || return 0
    apt=$PWD/bin/ha/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" bin/ha/patroni
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Identifier: Packages' |
        awk -v release="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$2 == "Debian" && $3 == release { print $1; exit }')
    echo "deb $mirror trixie main" >"$apt/sources.list"
    set -- -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt"
    (cd "$apt" && apt-get -qq "$@" update && apt-get -qq "$@" download patroni && dpkg -x patroni_*.deb files) || fail "there is no newer Patroni"
    for program in patroni patronictl; do
        printf '#!/bin/sh\nPYTHONPATH=%s/usr/lib/python3/dist-packages exec /usr/bin/python3 %s/usr/bin/%s "$@"\n' "$apt/files" "$apt/files" $program >bin/ha/patroni/$program
        chmod 755 bin/ha/patroni/$program
    done
}

export TRIPRIZE_TEST_HA_DIR=/tmp/triprize-ha # empty outside of the namespaces

# spaces runs the test with flags, in namespaces of their own.
spaces() {
    case "$*" in *run*returns*) newer_patroni && PATH=$PWD/bin/ha/patroni:$PATH ;; esac
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
}

mkdir -p $TRIPRIZE_TEST_HA_DIR bin/ha/log
rm -f bin/ha/log/*
go test -c -tags failpoint,ha -vet=off -o bin/ha/ha.test ./e2e/ha
if [ $# != 0 ]; then
    spaces "$@"
else
    spaces -test.skip /returns
    spaces -test.run /returns
    sed -i "s/^ha .*/ha $(date -u +%F) $(git rev-parse --short HEAD)/" tools/last-runs # a part is not the whole
fi
