#!/bin/sh
# Installs what only the tests of the page /verify need: a Chromium, which they run without
# a window. On Debian it is the package chromium; elsewhere, or where one is in PATH
# already (chromium, google-chrome), nothing is installed. With it comes a font with Japanese characters.
set -eu

has_browser() {
    for name in chromium chromium-browser google-chrome google-chrome-stable headless-shell chrome; do
        command -v "$name" >/dev/null && return 0
    done
    [ -e "/Applications/Google Chrome.app" ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

has_browser && exit 0
if ! command -v apt-get >/dev/null; then
    echo "tests need Chromium or Chrome in PATH; please install one" >&2
    exit 1
fi
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium fonts-vlgothic
has_browser || { echo "tests need Chromium or Chrome; apt has none that works (Ubuntu's is a snap): please install Google Chrome" >&2; exit 1; }
