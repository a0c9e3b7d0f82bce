#!/bin/sh
# Makes the secrets of docker-compose.yml in ./secrets, a file for each. Files that are there stay as
# they are. Back up draw_secret_key: campaigns that were published with it cannot be drawn without it.
#
#   sh deploy/secrets.sh
#
# Programs read a URL as a whole, because its password is a part of it; Postgres and Redis read the
# password. In a container the files have the rights that they have here, and no process runs as you:
# so all may read the files, and on this host only you the folder.
set -eu
umask 022
fail() { echo "secrets.sh: $*" >&2; exit 1; }
command -v openssl >/dev/null || fail "install openssl"
mkdir -p secrets
chmod 700 secrets
cd secrets

# new writes its input to a file that is not there yet, or empty: an interrupted run's, or of cards.
new() { if [ -s "$1" ]; then cat >/dev/null; else cat >"$1"; fi; }

openssl rand -hex 24 | new postgres_password     # of the role triprize, which migrates
openssl rand -hex 24 | new postgres_app_password # of the role triprize_app: the programs
openssl rand -hex 24 | new redis_password
openssl rand -hex 32 | new draw_secret_key
for file in postgres_password postgres_app_password redis_password; do # they become parts of URLs as they are
    ! tr -d '\n' <"$file" | grep -q '[^A-Za-z0-9._~-]' || fail "secrets/$file: a password may only have letters, digits and - . _ ~"
done
echo "postgres://triprize:$(cat postgres_password)@postgres:5432/triprize?sslmode=disable" | new postgres_owner_url
echo "postgres://triprize_app:$(cat postgres_app_password)@postgres:5432/triprize?sslmode=disable" | new postgres_url
echo "redis://default:$(cat redis_password)@redis:6379/0" | new redis_url
# Cards: the key of a Stripe account and the secret of its webhook. Empty: no cards.
: | new stripe_key
: | new stripe_webhook_secret
