// Package web has the pages that browsers run as programs: verify.html, which checks a draw.
//
// The page is written in plain JavaScript (verify/), from the published procedure and from
// nothing of the server: it shares no code with what it checks. Its libraries are pinned by
// the lock file of tools/npm and built in; the result is one file, kept here and embedded,
// so that building and running the server needs no Node.js. After a change of the sources:
//
//	make npm && node web/verify/build.mjs
//
// A test builds the page anew and compares.
//
//	verify/engine   the checks, as functions of bytes; also run as a worker
//	verify/page     files, progress, report, picture
//	verify/build.mjs puts both, the style and their policy into page.html
package web
