// The form of the documents: which members there are, and how each is spelled.

import { microseconds, putHex } from "./bytes.js";
import { FormError, largestMember, read } from "./canonical.js";
import { leafSize, version } from "./procedure.js";

// Each of these takes a value and the path to it, and throws a FormError.
const must = (holds, what) => (value, path) => { if (!holds(value)) throw new FormError(`${path} must be ${what}`); };
const text = must((value) => typeof value === "string", "a text");
const whole = must((value) => typeof value === "number", "a whole number");
const matching = (pattern, what) => must((value) => typeof value === "string" && pattern.test(value), what);
const hash = matching(/^[0-9a-f]{64}$/, "64 hex digits in lower case");
const nonce = matching(/^[0-9a-f]{32}$/, "32 hex digits in lower case");
const publicKey = matching(/^[0-9a-f]{192}$/, "192 hex digits in lower case");
const hexText = must((value) => typeof value === "string" && value.length % 2 === 0 && !/[^0-9a-f]/.test(value), "an even number of hex digits in lower case");
const id = matching(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, "a UUID in lower case");
const instant = must((value) => typeof value === "string" && microseconds(value) !== null, "a time such as 2026-11-22T09:30:00.123456Z");
const constant = (wanted) => must((value) => value === wanted, JSON.stringify(wanted));
const orNull = (check) => (value, path) => { if (value !== null) check(value, path); };
const list = (check) => (value, path) => {
  if (!Array.isArray(value)) throw new FormError(`${path} must be a list`);
  value.forEach((element, i) => check(element, `${path}[${i}]`));
};
const anyObject = (value, path) => {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new FormError(`${path || "the document"} must be an object`);
};
// object takes an object with exactly these members; those whose name ends in ? may be left out.
const object = (members) => {
  const checks = Object.entries(members).map(([name, check]) => [name.replace("?", ""), check, name.endsWith("?")]);
  const known = new Set(checks.map(([name]) => name));
  return Object.assign((value, path) => {
    anyObject(value, path);
    for (const [name, check, optional] of checks) {
      if (name in value) check(value[name], path ? `${path}.${name}` : name);
      else if (!optional) throw new FormError(`${path || "the document"} has no member ${name}`);
    }
    for (const name in value) if (!known.has(name)) throw new FormError(`${path || "the document"} has a member ${JSON.stringify(name)}, which is not known`);
  }, { known: new Map(checks) });
};

const soldLine = object({ layer: whole, column: whole, purchase_id: id, holder: hash });

const awarded = object({ prize: whole, name: text, layer: whole, column: whole, purchase_id: id });
const notAwarded = object({ prize: whole, name: text, layer: whole, awarded: constant(false) });
const winner = (value, path) => {
  anyObject(value, path);
  ("awarded" in value ? notAwarded : awarded)(value, path);
};

const proof = object({
  version: constant(version), campaign_id: id, rules: anyObject, commitment: hash, secret: hash,
  sold: list(() => {}), root: hash, count: whole, frozen_at: instant, round: orNull(whole), freeze_hash: hash,
  beacon: orNull(object({
    chain_hash: hash, public_key: publicKey, genesis_time: whole, genesis_seed: hash, beacon_id: text, period_s: whole,
    round: whole, signature: hexText, randomness: hash,
  })),
  winners: list(winner), trust: text,
});

// Of the rules document; the check `rules` uses it.
export const rulesForm = object({
  version: text, campaign_id: id, "base_length?": whole,
  layers: list(object({ layer: whole, positions: whole })),
  prizes: list(object({ number: whole, layer: whole, name: text })),
  beacon: orNull(object({ chain_hash: hash, period_s: whole })),
  "unsold?": object({ ends_at: instant }),
});

const purchaseProof = object({
  campaign_id: id, root: hash, count: whole,
  leaves: list(object({ layer: whole, column: whole, purchase_id: id, nonce, user_id: text, index: whole, path: list(hash) })),
});

// Leaves is a list of sold positions as the bytes of their leaves, one after the other.
export class Leaves {
  constructor() {
    this.length = 0;
    this.tooLarge = -1; // the first line with a number that does not fit into a leaf; -1: none
    this.bytes = new Uint8Array(1024 * leafSize);
  }

  add(line, path) {
    soldLine(line, path);
    if ((line.layer > 0xffffffff || line.column > 0xffffffff) && this.tooLarge < 0) this.tooLarge = this.length;
    const start = this.length * leafSize;
    if (start === this.bytes.length) {
      const larger = new Uint8Array(2 * start);
      larger.set(this.bytes);
      this.bytes = larger;
    }
    const view = new DataView(this.bytes.buffer, start, 8);
    view.setUint32(0, line.layer);
    view.setUint32(4, line.column);
    putHex(line.purchase_id, this.bytes, start + 8);
    putHex(line.holder, this.bytes, start + 24);
    this.length++;
  }

  at(i) {
    return this.bytes.subarray(i * leafSize, (i + 1) * leafSize);
  }

  // position returns [layer, column].
  position(i) {
    const b = this.bytes, at = i * leafSize;
    return [
      ((b[at] << 24) | (b[at + 1] << 16) | (b[at + 2] << 8) | b[at + 3]) >>> 0,
      ((b[at + 4] << 24) | (b[at + 5] << 16) | (b[at + 6] << 8) | b[at + 7]) >>> 0,
    ];
  }

  purchaseID(i) {
    return this.bytes.subarray(i * leafSize + 8, i * leafSize + 24);
  }
}

// readProof returns a proof document with its sold list as leaves.
export function readProof(bytes, progress) {
  const leaves = new Leaves();
  const document = read(bytes, proof.known, "sold", (line, i, at) => {
    leaves.add(line, `sold[${i}]`);
    if (i % 16384 === 0) progress(at / bytes.length);
  });
  proof(document, "");
  document.sold = leaves;
  return document;
}

export function readPurchaseProof(bytes) {
  if (bytes?.length > largestMember) throw new FormError(`the file has more than ${largestMember >> 20} MiB`);
  const document = read(bytes, purchaseProof.known);
  purchaseProof(document, "");
  if (document.leaves.length === 0) throw new FormError("leaves must not be empty");
  return document;
}
