#!/bin/sh
# Writes src/api.gen.ts, the types of the contract (api/openapi.yaml); make npm installs
# the generator. Another file may be named: a test compares.
#
# The generator does not read `if`: JobResults says what a job of each kind ends with, and Job, by
# hand in src/jobs.ts, takes the place of the plain JobDocument everywhere.
set -eu
cd "$(dirname "$0")"
out=${1:-src/api.gen.ts}
../../tools/npm/node_modules/.bin/openapi-typescript ../../api/openapi.yaml --output "$out" \
    --root-types --root-types-no-schema-prefix --default-non-nullable false --empty-objects-unknown >/dev/null
sed -e "s/^export type Job = /export type JobDocument = /" -e 's/components\["schemas"\]\["Job"\]/Job/g' "$out" >"$out.new"
{
    echo 'import type { Job } from "./jobs.js";'
    cat "$out.new"
    echo 'export interface JobResults {'
    sed -nE 's/^ +- \{if: \{properties: \{kind: \{enum: \[([^]]+)\]\}, state: .*schemas\/([A-Za-z]+)".*/\1 \2/p' ../../api/openapi.yaml |
        awk '{ for (i = 1; i < NF; i++) { sub(",", "", $i); printf "    \"%s\": %s;\n", $i, $NF } }'
    echo '}'
} >"$out"
rm "$out.new"
