#!/bin/sh
# Gives the Go client another module path: in client/go.mod, where it is written, and in
# whatever imports, requires, replaces or names it.
#
#   tools/client-path.sh example.com/triprize/client
set -eu
cd "$(dirname "$0")/.."

new=${1:-}
case $new in
*.*/*) ;;
*) new= ;;
esac
case $new in
'' | *[!A-Za-z0-9._~/-]* | /* | */ | *//*)
    echo "usage: make client-path MODULE=example.com/triprize/client" >&2
    echo "The path begins with a host that has a dot, as go get needs it." >&2
    exit 2
    ;;
esac
old=$(sed -n 's/^module //p' client/go.mod)

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
echo "The client is $new now (it was $old)."
