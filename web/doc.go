// Package web has the pages that browsers run as programs: verify.html, which checks a
// draw.
//
// The page is plain JavaScript (verify/), written from the published procedure, and shares
// no code with the server. Its libraries are pinned by the lock file of tools/npm and
// built in. The result is one embedded file in the repository, so building and running the
// server needs no Node.js. After a change of the sources:
//
//	make npm && node draw/web/build.mjs
//
// A test builds the page anew and compares.
//
//	verify/engine   the checks, as functions of bytes; also run as a worker
//	verify/page     files, progress, report, picture
//	verify/build.mjs puts both, the style and their policy into page.html
package web
