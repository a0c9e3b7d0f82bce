// Builds the page: node draw/web/build.mjs OUTPUT. One file with everything inside, and a
// policy that lets a browser run these scripts and no others. The libraries come from
// tools/npm, whose lock file pins them; the same sources give the same bytes.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const npm = join(here, "../../tools/npm");
const { build } = createRequire(join(npm, "package.json"))("esbuild");

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(here, entry)], absWorkingDir: here, nodePaths: [join(npm, "node_modules")],
    bundle: true, format: "iife", target: "es2022", minifyWhitespace: true, minifySyntax: true, charset: "ascii", legalComments: "eof", write: false,
  });
  const text = result.outputFiles[0].text;
  if (/<\/script|<!--/i.test(text)) throw new Error(`${entry}: the script would end its own element`);
  return text;
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const style = readFileSync(join(here, "page.css"), "utf8");
const engine = await bundle("engine/main.js");
const page = await bundle("page/main.js");
// A script that a worker runs comes from a blob; 'self' is for the one request that there is.
const policy = `default-src 'none'; script-src ${hash(engine)} ${hash(page)}; style-src ${hash(style)}; worker-src blob:; ` +
  "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'";

const parts = { POLICY: policy, STYLE: style, ENGINE: engine, PAGE: page };
const built = readFileSync(join(here, "page.html"), "utf8").replace(/%(POLICY|STYLE|ENGINE|PAGE)%/g, (_, name) => parts[name]);
writeFileSync(process.argv[2] ?? join(here, "verify.html"), built);
