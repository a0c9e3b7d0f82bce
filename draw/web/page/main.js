// The page: takes files, runs the engine, shows what it found. It shows every text of a
// document as text, never as markup.

import { download, downloadLabels, downloadName, Undrawn } from "./download.js";
import { byID, draw, showBack, showReport, showStatus } from "./report.js";

const { isHash } = globalThis.drawVerifier;

const chosen = { proof: null, purchase: null }; // blobs
let said = null; // what the server says of the campaign in the address
let checks = 0; // how many were begun: what an earlier one finds is not shown

async function check() {
  const mine = ++checks;
  showReport(null);
  showBack(false);
  if (!chosen.proof) {
    showStatus(chosen.purchase ? "Now choose the proof of the draw." : "");
    return;
  }
  showStatus("Checking …");
  try {
    const report = await run({ ...chosen, options: readOptions() }, (what, part) => {
      if (mine === checks) showStatus(`${what} …`, { part });
    });
    if (mine !== checks) return;
    showStatus("");
    if (report.onlyChainUnknown) byID("given").open = byID("chain-hash").closest("details").open = true; // it can be named there
    showReport(report, said);
  } catch (error) {
    if (mine === checks) showStatus(error.message, { problem: true });
  }
}

// Fields with hashes, and what is wrong with another text.
const fields = {
  "chain-hash": "The chain hash must be 64 hex digits.",
  commitment: "The commitment must be 64 hex digits.",
  "freeze-hash": "The hash of the freeze record must be 64 hex digits.",
};

// readOptions returns what the fields tell the engine. It throws for a text that is no hash.
function readOptions() {
  const [chain, commitment, freezeHash] = Object.entries(fields).map(([id, wrong]) => {
    const hash = byID(id).value.toLowerCase().trim();
    if (hash && !isHash(hash)) throw new Error(wrong);
    return hash || undefined;
  });
  return { chainHashes: chain ? [chain] : [], commitment, freezeHash };
}

// A proof of purchase begins with its campaign, the proof of a draw with its beacon.
async function isPurchase(file) {
  return (await file.slice(0, 14).text()) === '{"campaign_id"';
}

async function take(files) {
  for (const file of files) chosen[(await isPurchase(file)) ? "purchase" : "proof"] = file;
  check();
}

function listen() {
  byID("proof").addEventListener("change", ({ target }) => {
    chosen.proof = target.files[0] ?? null;
    check();
  });
  byID("purchase").addEventListener("change", ({ target }) => {
    chosen.purchase = target.files[0] ?? null;
    check();
  });
  for (const id in fields) byID(id).addEventListener("change", check);
  byID("files").addEventListener("submit", (event) => {
    event.preventDefault();
    check();
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    take([...event.dataTransfer.files]);
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// The address may name a campaign, and a chain: the page shows that it did. It names nobody that the
// user trusts, and nothing that the user noted: a link is often the operator's.
async function fromAddress() {
  const address = new URLSearchParams(location.search);
  const campaign = address.get("campaign");
  if (address.has("chain")) {
    byID("chain-hash").value = address.getAll("chain").join("\n");
    byID("chain-hash").closest("details").open = true;
    byID("from-address").hidden = false;
  }
  if (campaign === null) return;
  try {
    const mine = ++checks;
    showStatus("Asking for the proof …");
    const proof = await download(campaign, (part) => {
      if (mine === checks) showStatus("Loading …", { part });
    });
    const [labels, name] = await Promise.all([downloadLabels(campaign), downloadName(campaign)]);
    if (mine !== checks) return; // a file was chosen meanwhile
    chosen.proof = proof;
    said = { campaign: campaign.toLowerCase(), labels, name };
    byID("given").open = false; // the result comes first
    check();
  } catch (error) {
    showStatus(error.message, { problem: !(error instanceof Undrawn) });
    showBack(error instanceof Undrawn);
  }
}

let worker = null;
let abandon = () => {};

// run runs the engine in a worker. A browser that allows none, as some do for files from disk,
// runs it in the page, which then stands still meanwhile.
function run(files, progress) {
  worker?.terminate();
  abandon();
  try {
    const script = new Blob([byID("engine").textContent], { type: "text/javascript" });
    const address = URL.createObjectURL(script);
    worker = new Worker(address);
    return new Promise((resolve, reject) => {
      abandon = () => reject(new Error("Another check was begun."));
      worker.onmessage = ({ data }) => {
        if (data.progress) {
          progress(data.progress.what, data.progress.part);
          return;
        }
        finish(address);
        if (data.report) resolve(data.report);
        else reject(new Error(data.error));
      };
      worker.onerror = (event) => {
        finish(address);
        event.preventDefault();
        resolve(here(files));
      };
      worker.postMessage(files);
    });
  } catch {
    return here(files);
  }
}

function finish(address) {
  worker.terminate();
  worker = null;
  abandon = () => {};
  URL.revokeObjectURL(address);
}

const here = (files) => globalThis.drawVerifier.checkFiles(files, () => {});

byID("site").hidden = !location.protocol.startsWith("http"); // a copy on disk has no other pages
listen();
fromAddress();
