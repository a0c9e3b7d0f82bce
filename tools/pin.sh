#!/bin/sh
# Adds to the tags of images in docker-compose.yml and in the Dockerfile the digests that they have
# now, or changes those that are there. It needs docker with buildx, and the network.
set -eu
cd "$(dirname "$0")/.."

digest() { docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"; }

# pin FILE PREFIX: the image is the word after it.
pin() {
    sed -n "s/^$2\\([a-z0-9./-]*:[^ @]*\\).*/\\1/p" "$1" | sort -u | while read -r tag; do
        named=$(echo "$tag" | sed "s/\${GO_VERSION}/$go/")
        found=$(digest "$named") || exit 1
        echo "$1: $named@$found"
        sed -i "s|^\\($2\\)$tag\\(@sha256:[0-9a-f]*\\)\\{0,1\\}|\\1$tag@$found|" "$1"
    done
}

go=$(sed -n 's/^ARG GO_VERSION=//p' Dockerfile)
pin docker-compose.yml ' *image: '
pin Dockerfile 'FROM '
pin Dockerfile 'FROM --platform=$BUILDPLATFORM '
