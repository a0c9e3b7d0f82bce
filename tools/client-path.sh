#!/bin/sh
# Gives the Go client, or another module in a folder, another module path: in its go.mod, where
# it is written, and in whatever imports, requires, replaces or names it.
#
#   tools/client-path.sh example.com/triprize/client
#   tools/client-path.sh example.com/triprize/draw draw
set -eu
cd "$(dirname "$0")/.."

new=${1:-}
folder=${2:-client}
case $new in
*.*/*) ;;
*) new= ;;
esac
case $new in
'' | *[!A-Za-z0-9._~/-]* | /* | */ | *//*)
    echo "usage: make $folder-path MODULE=example.com/triprize/$folder" >&2
    echo "The path begins with a host that has a dot, as go get needs it." >&2
    exit 2
    ;;
esac
old=$(sed -n 's/^module //p' "$folder/go.mod")

# Not in what is downloaded or built. A path that only begins like the old one is another.
grep -rlF --include='*.go' --include=go.mod --include='*.md' --include=.golangci.yml \
    --exclude-dir=.git --exclude-dir=node_modules --exclude-dir=bin "$old" . |
    while read -r file; do
        escaped=$(printf '%s' "$old" | sed 's/[.]/\\./g')
        sed -E "s#(^|[^A-Za-z0-9._~/-])$escaped([^A-Za-z0-9._~-]|\$)#\1$new\2#g" "$file" > "$file.new"
        cat "$file.new" > "$file" # keeps its mode
        rm "$file.new"
    done
"$(go env GOROOT)/bin/gofmt" -w $(grep -rlF --include='*.go' --exclude-dir=node_modules "\"$new" .)
echo "The module $folder is $new now (it was $old)."
