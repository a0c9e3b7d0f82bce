#!/bin/sh
# Tries docker-compose.yml with Docker and Compose, from the image of another commit to this one
# (e2e/ha/compose_test.go says how). `make compose` and `make soak-long` call it.
#
#   COMMIT       to upgrade from, since deploy/secrets.sh is there (where this branch left origin/main, or the commit before HEAD)
#   DOCKER_HOST  a daemon with a registry, and with the ports 8000, 8080 and 8081 free. Without it a
#                daemon starts in namespaces of its own, without a network: as root, with Debian's
#                docker.io. There the base images are stand-ins made of this machine's programs.
#
# Everything that it starts or makes is gone at its end, whatever the end is.
set -eu
cd "$(dirname "$0")/.."
checkout=$PWD

fail() {
    echo "compose: $*" >&2
    exit 1
}

# passed notes the run in tools/last-runs.
passed() { sed -i "s/^compose .*/compose $(date -u +%F) $(git -C "$checkout" rev-parse --short HEAD)/" "$checkout/tools/last-runs"; }

# root copies programs of this machine, with the libraries that they load, into a folder.
root() {
    folder=$1
    shift
    mkdir -p "$folder/tmp" "$folder/etc" "$folder/usr/bin"
    ln -s usr/bin "$folder/bin"
    chmod 1777 "$folder/tmp"
    printf '%s\n' root:x:0:0::/:/bin/sh postgres:x:999:999::/:/bin/sh redis:x:999:999::/:/bin/sh nonroot:x:65532:65532::/: >"$folder/etc/passwd"
    sed 's/^\([^:]*:x:[0-9]*\):.*/\1:/' "$folder/etc/passwd" >"$folder/etc/group"
    for program in "$@"; do
        path=$(command -v "$program") || fail "this machine has no $program"
        for file in "$path" $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do cp -L -n --parents "$file" "$folder"; done
    done
}

# imported makes an image of a root and of what else is given to tar, with a line of its Dockerfile.
imported() {
    name=$1 root=$2 line=$3
    shift 3
    tar -c -C "$root" . "$@" | docker import --change "$line" - "$name" >/dev/null
}

# named gives an image the name that docker-compose.yml or the Dockerfile has, with more lines.
named() {
    name=$(sed -n "s#^ *\\(image:\\|FROM\\) \\($1:[^ ]*\\).*#\\2#p" docker-compose.yml Dockerfile | head -n 1)
    printf 'FROM stand-in:%s\n%s\n' "$2" "$3" | DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" - >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; fail "no image $name"; }
}

# standins makes the images that docker-compose.yml and the Dockerfile name.
standins() {
    bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    base=${bin%/bin} servers=$work/servers
    PATH=$bin:$PATH root "$servers" sh cat chmod chown id ls mkdir rm setpriv redis-server redis-cli postgres initdb pg_ctl pg_isready psql
    mkdir -p "$servers/run/postgresql" "$servers/var" "$servers/data" "$servers/usr/local/bin"
    ln -s ../run "$servers/var/run"
    chown 999 "$servers/run/postgresql"
    cp tools/compose/standin/entrypoint.sh "$servers/usr/local/bin/docker-entrypoint.sh"
    imported stand-in:servers "$servers" 'ENTRYPOINT ["docker-entrypoint.sh"]' --exclude=bitcode --exclude='llvmjit*' -C / "${base#/}/lib" "usr/share/postgresql/${base##*/}" usr/share/zoneinfo usr/lib/locale/C.utf8
    path="PATH=/usr/local/bin:$bin:/usr/bin:/bin"
    named postgres servers "ENV $path PGDATA=/var/lib/postgresql/data
STOPSIGNAL SIGINT"
    named redis servers "ENV $path
WORKDIR /data"

    root "$work/static"
    imported stand-in:static "$work/static" "USER 65532" -C / etc/ssl/certs/ca-certificates.crt
    named gcr.io/distroless/static-debian12 static ""

    root "$work/go" sh
    imported "golang:$(sed -n 's/^ARG GO_VERSION=//p' Dockerfile)-bookworm" "$work/go" \
        "ENV PATH=/usr/local/go/bin:/usr/bin:/bin GOPATH=/go GOTOOLCHAIN=local GOPROXY=file:///proxy GOSUMDB=off" \
        --exclude=go/test --transform="s#^$(go env GOROOT | cut -c 2-)#usr/local/go#" --transform='s#^download#proxy#' \
        -C / "$(go env GOROOT | cut -c 2-)" -C "$work/modules/cache" download
    rm -rf "$servers" "$work/static" "$work/go" "$work/modules"
    echo "compose: the base images are stand-ins: $(redis-server --version | cut -d ' ' -f 1-3), $("$bin/postgres" --version), $(go version)"
}

if [ "${1:-}" = inside ]; then
    work=$2
    ip link set lo up
    dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" --host "unix://$work/socket" --cgroup-parent "/$(basename "$work")" >"$work/dockerd.log" 2>&1 &
    export DOCKER_HOST="unix://$work/socket"
    until docker version >/dev/null 2>&1; do
        kill -0 $! || { tail -n 5 "$work/dockerd.log" >&2; fail "dockerd does not start"; }
        sleep 0.2
    done
    standins
    cd e2e/ha
    "$work/try" -test.v -test.run TestTheComposeFile
    exit
fi

# As a short path, because sockets below have at most 108 bytes.
work=$(mktemp -d /tmp/triprize-compose.XXXXXX)
ended() {
    rm -rf "$work"
    find /sys/fs/cgroup -depth -type d -path "*/$(basename "$work")*" -exec rmdir {} + 2>/dev/null || true
}
trap ended EXIT
trap 'exit 1' HUP INT TERM

commit=${COMMIT:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
[ -n "$commit" ] && [ "$(git rev-parse "$commit")" != "$(git rev-parse HEAD)" ] || commit=HEAD~
mkdir "$work/old" "$work/new"
git archive "$commit" | tar -x -C "$work/old"
git ls-files -z | tar -c --null --files-from=- | tar -x -C "$work/new"

export CGO_ENABLED=0
plugins="$work/config/cli-plugins"
GOBIN="$plugins" go install -trimpath -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=tried" github.com/docker/compose/v2/cmd@v2.29.7
mv "$plugins/cmd" "$plugins/docker-compose"
go test -c -tags failpoint,compose -vet=off -o "$work/try" ./e2e/ha
export DOCKER_CONFIG="$work/config" TRY_FOLDER="$work"
if [ -n "${DOCKER_HOST:-}" ]; then
    cd e2e/ha
    "$work/try" -test.v -test.run TestTheComposeFile
    passed
    exit
fi
[ "$(id -u)" = 0 ] || fail "needs root, or a daemon in DOCKER_HOST"
# The build of the image finds its modules here: its machine has no network.
downloaded=file://$(go env GOMODCACHE)/cache/download
for tree in old new; do
    (cd "$work/$tree" && go mod download && GOFLAGS=-modcacherw GOMODCACHE="$work/modules" GOSUMDB=off GOPROXY="$downloaded" go mod download)
done
find "$work/modules" -mindepth 1 -maxdepth 1 ! -name cache -exec rm -rf {} +
setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc sh tools/compose.sh inside "$work" &
trap 'kill -KILL $!; wait; exit 1' HUP INT TERM
wait $!
passed
