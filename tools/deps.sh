#!/bin/sh
# Finds what Triprize needs besides Go, and installs what is missing:
#
#   PostgreSQL 15 or newer (initdb and postgres; no cluster, no service)
#   Redis 7 or newer       (redis-server; no service)
#
# and what its arguments name:
#
#   compiler   of C        (the race detector links with it: make race)
#   python     3.9 or newer (tests run the script of docs/draw.md: make web)
#   openssl                (the page about webhooks verifies with it: make soak)
#   nginx                  (tests run the example for it: make soak; no service)
#   docker and haproxy     (they run docker-compose.yml: make compose; no service)
#   prometheus and amtool   (they check and run the alerts: make alerts, make soak; no service)
#   hosts      Patroni, etcd, haproxy, ip and iptables (several hosts: make ha; no services)
#
# If nothing is missing it does nothing and needs no rights. Installing works on
# Debian and Ubuntu; elsewhere it says what to install and fails.
set -eu

oldest_postgres=15
oldest_redis=7 # SET with NX and GET together
also=" $* "

# wants tells whether an argument names something.
wants() { case $also in *" $1 "*) ;; *) return 1 ;; esac; }

# has tells whether programs are there.
has() { for program in "$@"; do command -v "$program" >/dev/null || return 1; done; }

# Debian does not put the server's programs into PATH; it has a folder per version.
has_postgres() {
    for bin in /usr/lib/postgresql/*/bin "$(dirname "$(command -v postgres || echo /nowhere/postgres)")"; do
        if [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ]; then
            version=$("$bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/') # postgres (PostgreSQL) 15.13 (Debian …)
            [ "$version" -ge "$oldest_postgres" ] && return 0
        fi
    done
    return 1
}

has_redis() {
    has redis-server || return 1
    version=$(redis-server --version | sed -n 's/.* v=\([0-9][0-9]*\).*/\1/p') # Redis server v=7.0.15 sha=…
    [ "${version:-0}" -ge "$oldest_redis" ]
}

# A compiler is of no use without the headers of the C library.
has_compiler() {
    for cc in "${CC:-cc}" gcc clang; do
        command -v "$cc" >/dev/null && echo '#include <stdlib.h>' | "$cc" -E - >/dev/null 2>&1 && return 0
    done
    return 1
}

has_python() { has python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; }

has_prometheus() { has prometheus promtool amtool; }

# Without DOCKER_HOST make compose starts a daemon, in a network of its own.
wants_daemon() { wants docker && [ -z "${DOCKER_HOST:-}" ]; }
has_docker() { has docker && { ! wants_daemon || has dockerd; }; }
has_haproxy() { { ! wants docker && ! wants hosts; } || has haproxy; } # or needs none
has_networks() { { ! wants_daemon && ! wants hosts; } || has ip iptables; }

# Go downloads modules over TLS; a minimal Debian has no CA certificates.
has_certificates() { ! command -v apt-get >/dev/null || [ -e /etc/ssl/certs/ca-certificates.crt ]; }

missing() {
    has_postgres || echo "PostgreSQL $oldest_postgres or newer"
    has_redis || echo "Redis (redis-server) $oldest_redis or newer"
    ! wants compiler || has_compiler || echo "a C compiler"
    ! wants python || has_python || echo "Python 3.9 or newer (python3)"
    ! wants openssl || has openssl || echo "openssl"
    ! wants nginx || has nginx || echo "nginx"
    ! wants prometheus || has_prometheus || echo "Prometheus and amtool"
    ! wants docker || has_docker || echo "Docker"
    ! wants hosts || has patroni || echo "Patroni"
    ! wants hosts || has etcd || echo "etcd"
    has_haproxy || echo "haproxy"
    has_networks || echo "ip and iptables"
    has_certificates || echo "CA certificates"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_install fails where a package would replace another: docker.io, for one, docker-ce.
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-remove --no-install-recommends "$@"
}

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.conf
restore=: # commands that undo our changes to the machine's configuration; they run at exit

# no_services keeps packages from starting the services that they install.
no_services() {
    [ ! -e "$policy" ] || return 0 # this machine has its own policy
    restore="$restore; as_root rm -f $policy"
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

# no_cluster keeps the package from creating a cluster, which would run as a service
# from the next boot on.
no_cluster() {
    apt_install postgresql-common # it has the file below
    as_root cp -p "$clusters" "$clusters.before-triprize"
    restore="$restore; as_root mv -f $clusters.before-triprize $clusters"
    echo 'create_main_cluster = false' | as_root tee -a "$clusters" >/dev/null
}

# apt_service installs packages, and keeps their services from starting at the next boot, but for those that
# were there before.
apt_service() {
    packages=$1 new=
    shift
    for unit in "$@"; do systemctl cat "$unit" >/dev/null 2>&1 || new="$new $unit"; done
    apt_install $packages
    [ ! -d /run/systemd/system ] || [ -z "$new" ] || as_root systemctl disable $new
}

install_on_debian() {
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "deps: run this as root, or install sudo" >&2
        exit 1
    fi
    trap 'eval "$restore"' EXIT
    trap 'exit 1' HUP INT TERM
    as_root apt-get update
    no_services
    has_certificates || apt_install ca-certificates
    ! wants compiler || has_compiler || apt_install gcc libc6-dev
    ! wants openssl || has openssl || apt_install openssl
    ! wants nginx || has nginx || apt_service nginx nginx
    ! wants python || has_python || apt_install python3
    if ! has_postgres; then
        no_cluster
        apt_install postgresql
    fi
    has_redis || apt_service redis-server redis-server
    ! wants prometheus || has_prometheus || apt_service "prometheus prometheus-alertmanager" prometheus prometheus-alertmanager
    ! wants docker || has_docker || apt_service docker.io docker docker.socket containerd
    ! wants hosts || has patroni || apt_service patroni patroni
    ! wants hosts || has etcd || apt_service etcd-server etcd
    has_haproxy || apt_service haproxy haproxy
    has_networks || apt_install iproute2 iptables
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0
echo "deps: missing: $(echo "$wanted" | paste -sd, - | sed 's/,/, /g')" >&2

if ! command -v apt-get >/dev/null; then
    cat >&2 <<EOF
deps: this system is neither Debian nor Ubuntu; please install them yourself:
  macOS   brew install postgresql@16 redis openssl nginx python prometheus alertmanager   (and: xcode-select --install)
          then put PostgreSQL into PATH: export PATH="\$(brew --prefix postgresql@16)/bin:\$PATH"
  Fedora  dnf install postgresql-server redis gcc openssl nginx python3   (Prometheus: https://prometheus.io/download/)
  Arch    pacman -S postgresql redis gcc openssl nginx python prometheus alertmanager
EOF
    exit 1
fi

install_on_debian

wanted=$(missing)
if [ -n "$wanted" ]; then
    cat >&2 <<EOF
deps: still missing after the installation: $(echo "$wanted" | paste -sd, - | sed 's/,/, /g')
deps: where the distribution's PostgreSQL is older than $oldest_postgres, take it from https://wiki.postgresql.org/wiki/Apt
deps: where its Redis is older than $oldest_redis, take it from https://redis.io/docs/latest/operate/oss_and_stack/install/install-stack/apt/
EOF
    exit 1
fi
