// The engine of the page: runs the checks of a proof document, and of a proof of purchase beside it.
// It stands in a script of its own, which also runs as a worker, so that a long list does not stop
// the page. It asks no server and no clock.

import { FormError, largest } from "./canonical.js";
import * as checks from "./checks.js";
import { readProof, readPurchaseProof } from "./form.js";
import { quicknet } from "./procedure.js";

// In this order; each with its name in docs/draw.md. Those that need rules are not made without.
const all = [
  ["rules", checks.rules],
  ["commitment", checks.commitment],
  ["sold-list", checks.soldList, ["rules"]],
  ["count", checks.soldCount, ["rules"]],
  ["root", checks.root],
  ["freeze-time", checks.freezeTime, ["rules"]],
  ["freeze-hash", checks.freezeHash],
  ["chain", checks.chain, ["rules"]],
  ["round", checks.round, ["rules"]],
  ["signature", checks.signature, ["rules"]],
  ["randomness", checks.randomness],
  ["winners", checks.winners, ["rules", "sold-list"]],
  ["trust", checks.trust, ["rules"]],
];

const largestPicture = 4_000_000; // positions

const longestText = 2000; // characters of what a check says: it may quote a document

// verify returns {verdict, headline, onlyChainUnknown, checks: [{name, status, text, nothing}], campaign, purchase}.
// The verdict is "verified" if every check holds, or "failed". proof and purchase are bytes, or null
// for a file that is too long; purchase is undefined if there is none. All else is what the user says,
// hashes in lower-case hex: chainHashes are those of chains that it trusts (quicknet's is), commitment
// and freezeHash what it noted, or null. progress is called with what is done and how much of it, from
// 0 to 1.
export function verify(proof, { purchase, chainHashes = [], commitment = null, freezeHash = null, progress = () => {} } = {}) {
  const options = { chainHashes, commitment, freezeHash };
  const results = [];
  const run = (name, needs, work) => {
    const missing = needs.find((n) => results.find((r) => r.name === n)?.status !== "ok");
    const result = missing ? { status: "not-made", text: `Without the check ${missing} it means nothing.` } : attempt(work);
    results.push({ name, ...result, text: shortened(result.text) });
    return results.at(-1).status === "ok";
  };
  let document = null, mine = null;
  const form = run("form", [], () => {
    document = readProof(proof, (part) => progress("Reading", part));
    return "It is one proof document in canonical form.";
  });
  for (const [name, check, needs = []] of all) {
    run(name, ["form", ...needs], () => check(document, options, (part) => progress("Hashing", part)));
  }
  if (commitment) run("noted-commitment", ["form"], () => checks.noted(document.commitment, commitment));
  if (freezeHash) run("noted-freeze-hash", ["form"], () => checks.noted(document.freeze_hash, freezeHash));
  if (purchase !== undefined) {
    run("purchase-form", [], () => {
      mine = readPurchaseProof(purchase);
      return "It is one proof of purchase in canonical form.";
    });
    run("purchase-campaign", ["form", "purchase-form"], () => checks.purchaseCampaign(mine, document));
    run("inclusion", ["form", "purchase-form"], () => checks.inclusion(mine, document));
  }
  const ok = (...names) => names.every((name) => results.find((r) => r.name === name)?.status === "ok");
  const bad = results.filter((r) => r.status !== "ok");
  const verified = bad.length === 0;
  return {
    verdict: verified ? "verified" : "failed",
    headline: verified ? "verified" : "not verified",
    onlyChainUnknown: bad.length === 1 && bad[0].unknownChain === true,
    checks: results,
    campaign: form ? campaignOf(document, ok("rules", "sold-list")) : null,
    meaning: verified ? meaning(document, options) : null,
    purchase: mine && verified ? checks.outcomeOf(mine, document) : null,
  };
}

function attempt(work) {
  try {
    const found = work();
    return { status: "ok", ...(typeof found === "string" ? { text: found } : found) };
  } catch (error) {
    const text = sentence(error.message);
    if (error instanceof checks.NotMade) return { status: "not-made", text };
    if (error instanceof checks.UnknownChain) return { status: "failed", text, unknownChain: true };
    if (error instanceof checks.Failed || error instanceof FormError) return { status: "failed", text };
    return { status: "failed", text: `This page failed: ${error.message}` }; // a defect of ours never verifies
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
const shortened = (text) => (text.length > longestText ? text.slice(0, longestText) + "…" : text);

// campaignOf returns what the page shows of a document. Without sound rules, and
// with more positions than a picture shows, it has no layers.
function campaignOf(document, sound) {
  const { campaign_id, count, frozen_at, commitment, freeze_hash, root, trust, winners } = document;
  const campaign = { campaign_id, count, frozen_at, commitment, freeze_hash, root, trust, winners, layers: null, ownChain: document.beacon !== null && document.beacon.chain_hash !== quicknet };
  if (!sound) return campaign;
  const { rules } = document;
  const positions = checks.positionsOf(rules);
  return {
    ...campaign, positions, layers: positions <= largestPicture ? rules.layers : null, triangle: "base_length" in rules,
    unsold: document.sold.length < positions && positions <= largestPicture ? unsold(rules, document.sold, positions) : null,
  };
}

// unsold returns a byte per position, in order: 1 where nobody bought it.
function unsold(rules, sold, positions) {
  const first = new Map();
  let sum = 0;
  for (const { layer, positions } of rules.layers) {
    first.set(layer, sum);
    sum += positions;
  }
  const map = new Uint8Array(positions).fill(1);
  for (let i = 0; i < sold.length; i++) {
    const [layer, column] = sold.position(i);
    map[first.get(layer) + column - 1] = 0;
  }
  return map;
}

// isHash tells whether a text is a hash as the options take it.
export const isHash = (text) => /^[0-9a-f]{64}$/.test(text);

// meaning returns {shows, open}: sentences. commitment and freezeHash are what the user noted, or null.
export function meaning(document, { commitment, freezeHash }) {
  const shows = ["The winners follow from rules, secret and list."];
  const open = [
    "The names of the buyers. The operator may have bought as well.",
    "That no buyer was left out: that is for each buyer to see, with a proof of purchase.",
    "The author of this document. It is not signed, and once the secret is public anybody can write another one that holds.",
    "That the operator made only one record. If it showed you two for one campaign, it made two; after a restored backup that happens, too, and it owes an explanation.",
  ];
  if (commitment) shows.push("Nothing changed in rules and secret since you noted their commitment.");
  else open.unshift("That rules and secret were fixed before the sale. If you noted the commitment then, put it in above.");
  if (freezeHash) shows.push("Nothing changed after the list was frozen: you noted the hash of the freeze record.");
  else open.unshift("That nothing changed after the list was frozen. If you noted the hash of the freeze record before the draw, put it in above.");
  if (!document.rules.beacon) {
    open.unshift("That nobody steered the draw: the operator knew the secret. If it bought last, or chose the random values in the list, it could have tried until the winners pleased.");
    return { shows, open };
  }
  shows.push("The winners hang on a round of the beacon that was named in the freeze record. Nobody can choose a round, and nobody knows it before it is due, unless most of the beacon's members work together.");
  open.unshift("That every draw was published: an operator can withhold one, or go back to a backup and freeze again. Then there are two records.");
  if (document.beacon.chain_hash !== quicknet) open.unshift("That nobody knew the round: you named its chain, and the maker of a chain can know every round beforehand.");
  open.unshift("When the freeze record was made: nobody but the operator says so here. The operator could have made several records after the round was known, and kept the one that pleased. The hash of the record tells, if you noted it before the round was due.");
  return { shows, open };
}

// checkFiles verifies what two blobs hold; purchase may be null. options are those of verify.
async function checkFiles({ proof, purchase, options }, progress) {
  const bytesOf = async (blob) => (blob.size > largest ? null : new Uint8Array(await blob.arrayBuffer()));
  return verify(await bytesOf(proof), { ...options, purchase: purchase ? await bytesOf(purchase) : undefined, progress });
}

globalThis.drawVerifier = { verify, checkFiles, isHash, largest };

if (typeof WorkerGlobalScope !== "undefined" && globalThis instanceof WorkerGlobalScope) {
  globalThis.onmessage = async ({ data }) => {
    try {
      const report = await checkFiles(data, (what, part) => postMessage({ progress: { what, part } }));
      postMessage({ report });
    } catch (error) {
      postMessage({ error: error.message });
    }
  };
}
