// Runs the checks of a proof document, and of a proof of purchase beside it.

import { quicknet } from "./beacon.js";
import * as checks from "./checks.js";
import { FormError } from "./canonical.js";
import { readProof, readPurchaseProof } from "./form.js";
import { inclusion, outcomeOf, purchaseCampaign } from "./purchase.js";
import { meaning } from "./meaning.js";

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

// verify returns {verdict, headline, onlyChainUnknown, checks: [{name, status, text}], campaign, purchase}.
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
    run("purchase-campaign", ["form", "purchase-form"], () => purchaseCampaign(mine, document));
    run("inclusion", ["form", "purchase-form"], () => inclusion(mine, document));
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
    purchase: mine && verified ? outcomeOf(mine, document) : null,
  };
}

function attempt(work) {
  try {
    return { status: "ok", text: work() };
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
