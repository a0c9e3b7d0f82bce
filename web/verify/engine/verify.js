// Runs the checks of a proof document, and of a proof of purchase beside it.

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
  ["witness", checks.witness, ["rules"]],
  ["winners", checks.winners, ["rules", "sold-list"]],
  ["trust", checks.trust, ["rules"]],
];

const largestPicture = 4_000_000; // positions

// verify returns {verdict, onlyChainUnknown, checks: [{name, status, text}], campaign, purchase}. The verdict is
// "verified", "failed", or "incomplete" if a check was not made. proof and purchase are bytes;
// purchase may be null. chainHashes are those that the user trusts besides quicknet's. progress
// is called with what is done and how much of it, from 0 to 1.
export function verify(proof, { purchase = null, chainHashes = [], progress = () => {} } = {}) {
  const results = [];
  const run = (name, needs, work) => {
    const missing = needs.find((n) => results.find((r) => r.name === n)?.status !== "ok");
    results.push({ name, ...(missing ? { status: "not-made", text: `Without the check ${missing} it means nothing.` } : attempt(work)) });
    return results.at(-1).status === "ok";
  };
  let document = null, mine = null;
  const form = run("form", [], () => {
    document = readProof(proof, (part) => progress("Reading", part));
    return "It is one proof document in canonical form.";
  });
  for (const [name, check, needs = []] of all) {
    run(name, ["form", ...needs], () => check(document, { chainHashes }, (part) => progress("Hashing", part)));
  }
  if (purchase) {
    run("purchase-form", [], () => {
      mine = readPurchaseProof(purchase);
      return "It is one proof of purchase in canonical form.";
    });
    run("purchase-campaign", ["form", "purchase-form"], () => purchaseCampaign(mine, document));
    run("inclusion", ["form", "purchase-form"], () => inclusion(mine, document));
  }
  const ok = (...names) => names.every((name) => results.find((r) => r.name === name)?.status === "ok");
  const bad = results.filter((r) => r.status !== "ok");
  return {
    verdict: verdictOf(results),
    onlyChainUnknown: bad.length === 1 && bad[0].unknownChain === true,
    checks: results,
    campaign: form ? campaignOf(document, ok("rules", "sold-list")) : null,
    purchase: mine && verdictOf(results) === "verified" ? outcomeOf(mine, document) : null,
  };
}

function attempt(work) {
  try {
    return { status: "ok", text: work() };
  } catch (error) {
    if (error instanceof checks.NotMade) return { status: "not-made", text: sentence(error.message) };
    if (error instanceof checks.UnknownChain) return { status: "failed", text: sentence(error.message), unknownChain: true };
    if (error instanceof checks.Failed || error instanceof FormError) return { status: "failed", text: sentence(error.message) };
    return { status: "failed", text: `This page failed: ${error.message}` }; // a defect of ours never verifies
  }
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");

function verdictOf(results) {
  if (results.some((r) => r.status === "failed")) return "failed";
  return results.every((r) => r.status === "ok") ? "verified" : "incomplete";
}

// campaignOf returns what the page shows of a document. Without sound rules it has no layers.
function campaignOf(document, sound) {
  const { campaign_id, count, frozen_at, commitment, freeze_hash, root, trust, winners } = document;
  const campaign = { campaign_id, count, frozen_at, commitment, freeze_hash, root, trust, winners, layers: null };
  if (!sound) return campaign;
  const { rules } = document;
  const positions = checks.positionsOf(rules);
  return {
    ...campaign, positions, layers: rules.layers, triangle: "base_length" in rules,
    meaning: meaning(document),
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

// The hash of a chain, for whoever types one.
export const isChainHash = (text) => /^[0-9a-f]{64}$/.test(text);
