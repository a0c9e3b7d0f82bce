#!/bin/sh
# Writes src/api.gen.ts, the types of the contract (api/openapi.yaml); make npm installs
# the generator. Another file may be named: a test compares.
set -eu
cd "$(dirname "$0")"
out=${1:-src/api.gen.ts}
../../tools/npm/node_modules/.bin/openapi-typescript ../../api/openapi.yaml --output "$out" \
    --root-types --root-types-no-schema-prefix --default-non-nullable false --empty-objects-unknown >/dev/null
