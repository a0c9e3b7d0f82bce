#!/bin/sh
# Installs what only tests need from npm (tools/npm/package.json): spectral, which lints the contract,
# axe-core, which looks at our pages, what the page /verify is built from (draw/web/build.mjs), the
# libraries of the console, which make generate copies into it, and what the TypeScript client is generated,
# built and tested with (clients/typescript). It needs Node.js 18 or newer and npm, and installs them on
# Debian and Ubuntu.
set -eu
cd "$(dirname "$0")/npm"

oldest_node=18

has_node() {
    command -v node >/dev/null && command -v npm >/dev/null &&
        [ "$(node --version | sed 's/^v\([0-9]*\).*/\1/')" -ge "$oldest_node" ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if ! has_node; then
    if ! command -v apt-get >/dev/null; then
        echo "tests need Node.js $oldest_node or newer and npm; please install them" >&2
        exit 1
    fi
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends nodejs npm
    has_node || { echo "tests need Node.js $oldest_node or newer; apt has only $(node --version)" >&2; exit 1; }
fi

# The copy of the lock file says what is installed.
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
    npm ci --no-progress --ignore-scripts
    cp package-lock.json node_modules/.installed-lock.json
fi
