#!/bin/sh
# What the entrypoints of the official images of Postgres and Redis do with what docker-compose.yml
# sets. It is part of stand-ins (tools/compose.sh).
set -eu

# as runs the command as a user, again by this entrypoint.
as() {
    user=$1
    shift
    [ "$(id -u)" != 0 ] || exec setpriv --reuid="$user" --regid="$user" --clear-groups "$0" "$@"
}

case ${1:-} in
redis-server)
    [ "$(id -u)" != 0 ] || chown redis .
    as redis "$@"
    ;;
postgres)
    [ "$(id -u)" != 0 ] || { mkdir -p "$PGDATA" && chown postgres "$PGDATA" && chmod 700 "$PGDATA"; }
    as postgres "$@"
    if [ ! -e "$PGDATA/PG_VERSION" ]; then
        [ -z "${POSTGRES_PASSWORD_FILE:-}" ] || POSTGRES_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
        echo "$POSTGRES_PASSWORD" >/tmp/password
        initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
        rm /tmp/password
        echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
        echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
        pg_ctl --wait --options="-c listen_addresses=''" start
        psql --no-psqlrc --username="$POSTGRES_USER" --dbname=postgres --command="CREATE DATABASE \"$POSTGRES_DB\" ENCODING 'UTF8' TEMPLATE template0"
        for file in /docker-entrypoint-initdb.d/*.sql; do
            psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --file="$file"
        done
        pg_ctl --wait stop
    fi
    ;;
esac
exec "$@"
