#!/bin/sh
# Compiles src to dist. The compiler is the only thing that is needed, and is installed if it is
# missing: npm install of this folder runs this, without the devDependencies of the folder.
set -eu
cd "$(dirname "$0")"
[ -x node_modules/.bin/tsc ] || npm ci --ignore-scripts --no-audit --no-fund
rm -rf dist
exec node_modules/.bin/tsc --project tsconfig.json
