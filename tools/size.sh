#!/usr/bin/env bash
# Holds the size of the project against docs/size.txt: hand-written lines (blank ones and comments included) of each
# room and of its sums, words of the pages, decisions and settings. A number that is larger than there fails.
# -w writes the file.
set -euo pipefail
cd "$(dirname "$0")/.."

tests='(_test\.go|\.test\.(ts|js|mjs))$|(^|/)testkit/.*\.go$|^e2e/.*\.go$'

# lines prints the lines of each file of the list that is not generated, and its name.
lines() { xargs -r awk 'FNR == 1 { made = 0 } FNR <= 5 && /[Cc]ode generated|[Gg]enerated by/ { made = 1 } !made { n[FILENAME]++ } END { for (f in n) print n[f], f }'; }

measure() {
    git ls-files '*.go' | grep -vE "$tests" | lines | awk '
        { split($2, f, "/"); room = f[1]; product = 0 }
        room == "internal" { room = f[1] "/" f[2] (f[2] == "entry" ? "/" f[3] : ""); product = 1 }
        room == "cmd" { room = f[2] == "triprize-dev" ? "devkit" : "cmd"; product = room == "cmd" }
        room ~ /^(tools|api|web|clients?|configs|deploy|docs|migrations|internal\/doc.go)$/ || !/\// { room = "clients, tools and the rest" }
        { n[room] += $1; if (product) n["= cmd and internal"] += $1 }
        END { for (r in n) print n[r], r }'
    printf '%s = tests and test kit\n' "$(git ls-files | grep -E "$tests" | lines | awk '{ n += $1 } END { print n }')"
    printf '%s = words of README and pages\n' "$(git ls-files 'docs/*.md' README.md | xargs cat | wc -w)"
    printf '%s = pages, scripts and styles of the browser\n' "$(git ls-files | grep -E '\.(html|css|js|mjs)$' | grep -vE "$tests|^draw/|testdata|\.min\." | lines | awk '{ n += $1 } END { print n }')"
    printf '%s = lines of migrations\n' "$(git ls-files 'migrations/*.sql' | lines | awk '{ n += $1 } END { print n }')"
    printf '%s = decisions\n' "$(git ls-files 'docs/adr/*.md' | wc -l)"
    printf '%s = settings\n' "$(grep -cE '^  +[a-z_]+:' configs/triprize.yaml)"
}

measure | LC_ALL=C sort -k2 >bin/size.txt
if [ "${1:-}" = -w ]; then
    { sed -n '/^#/p' docs/size.txt && cat bin/size.txt; } >bin/size.new && mv bin/size.new docs/size.txt
fi
awk '{ n = $1; $1 = ""; name = substr($0, 2) }
    NR == FNR { if (!/#/) most[name] = n; next }
    !(name in most) { printf "%s: %d, and docs/size.txt does not have it\n", name, n >"/dev/stderr"; bad = 1; next }
    n > most[name] { printf "%s: %d, docs/size.txt allows %d\n", name, n, most[name] >"/dev/stderr"; bad = 1; next }
    { printf "%7d of %7d  %s\n", n, most[name], name }
    END { if (bad) print "Make it smaller; or raise the number in docs/size.txt, and say why in the body of the commit." >"/dev/stderr"; exit bad }' docs/size.txt bin/size.txt
