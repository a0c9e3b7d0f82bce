// The arithmetic of a draw: the Merkle tree of RFC 9162 over the leaves of the sold list, the rounds
// of a chain of drand (scheme bls-unchained-g1-rfc9380), and the selection of the winners.

import { bls12_381 } from "@noble/curves/bls12-381.js";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concat, equal, hex, u32, u64, unhex, utf8, uuid } from "./bytes.js";

export const version = "triprize-draw/1";

export const leafSize = 56; // layer (4), column (4), purchase id (16), holder (32)

function leafHash(leaf) {
  const input = new Uint8Array(1 + leaf.length);
  input.set(leaf, 1);
  return sha256(input);
}

function nodeHash(left, right) {
  const input = new Uint8Array(65);
  input[0] = 1;
  input.set(left, 1);
  input.set(right, 33);
  return sha256(input);
}

// rootOf returns the root over a list of leaves. It keeps one hash per level.
export function rootOf(leaves, progress) {
  const full = []; // full[k]: the root of a whole tree of 2^k leaves that waits for its right neighbour
  for (let i = 0; i < leaves.length; i++) {
    let hash = leafHash(leaves.at(i));
    let level = 0;
    for (; full[level]; level++) {
      hash = nodeHash(full[level], hash);
      full[level] = null;
    }
    full[level] = hash;
    if (i % 16384 === 0) progress(i / leaves.length);
  }
  let root = null;
  for (const hash of full) if (hash) root = root ? nodeHash(hash, root) : hash;
  return root ?? sha256(new Uint8Array(0));
}

// leadsTo tells whether a path leads from the leaf at an index to the root (RFC 9162, 2.1.3.2).
export function leadsTo(leaf, index, count, path, root) {
  if (index >= count) return false;
  let node = index, last = count - 1, hash = leafHash(leaf);
  for (const sibling of path) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      hash = nodeHash(sibling, hash);
      while (node % 2 === 0 && node !== 0) {
        node = Math.floor(node / 2);
        last = Math.floor(last / 2);
      }
    } else {
      hash = nodeHash(hash, sibling);
    }
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && equal(hash, root);
}

export const quicknet = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971";

// The id of chains that are made for tests.
export const testID = "triprize-test";

const suite = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_";
const second = 1_000_000n; // times are in microseconds

// chainHash returns the hash of a chain's data, in hex. A period above 32 bits has none.
export function chainHash(beacon) {
  if (beacon.period_s > 0xffffffff) return null;
  return hex(sha256(concat(u32(beacon.period_s), u64(beacon.genesis_time), unhex(beacon.public_key), unhex(beacon.genesis_seed), utf8(beacon.beacon_id))));
}

// newestAt returns the newest round that is due at a time: 0 before the genesis.
export function newestAt(beacon, us) {
  const since = us - BigInt(beacon.genesis_time) * second;
  return since < 0n ? 0n : since / (BigInt(beacon.period_s) * second) + 1n;
}

// dueAt returns when a round is due.
export function dueAt(beacon, round) {
  return (BigInt(beacon.genesis_time) + (BigInt(round) - 1n) * BigInt(beacon.period_s)) * second;
}

let last = { key: "", good: false }; // many files may have one round

// isSigned tells whether a signature is that of a round. It takes some ten milliseconds.
export function isSigned(publicKey, round, signature) {
  if (signature.length !== 96) return false;
  const key = `${publicKey} ${round} ${signature}`;
  if (last.key !== key) last = { key, good: verify(unhex(publicKey), u64(round), unhex(signature)) };
  return last.good;
}

function verify(publicKey, round, signature) {
  const bls = bls12_381.shortSignatures;
  try {
    return bls.verify(signature, bls.hash(sha256(round), suite), publicKey); // reads both as points of their subgroups
  } catch {
    return false; // not a point
  }
}

// numbers yields the stream of 64-bit numbers of an entropy.
function* numbers(entropy) {
  for (let i = 0n; ; i++) {
    const block = hmac(sha256, entropy, concat(utf8(version + " stream\0"), u64(i)));
    const view = new DataView(block.buffer, block.byteOffset, 32);
    for (let at = 0; at < 32; at += 8) yield view.getBigUint64(at);
  }
}

// below returns the next index below n (a number), each equally likely.
function below(stream, n) {
  const wide = BigInt(n);
  const end = 2n ** 64n - (2n ** 64n % wide);
  for (;;) {
    const x = stream.next().value;
    if (x < end) return Number(x % wide);
  }
}

// Candidates is a list that gives its i-th element away in log n steps, by a Fenwick tree over
// what is left: a layer can have half a million positions and as many prizes.
class Candidates {
  constructor(list) {
    this.list = list;
    this.length = list.length; // that are left
    this.tree = new Int32Array(list.length + 1);
    for (let i = 1; i <= list.length; i++) this.tree[i] = i & -i;
    this.top = 1;
    while (2 * this.top <= list.length) this.top *= 2;
  }

  // take removes the i-th of those that are left, counted from 0, and returns it.
  take(i) {
    let at = 0;
    for (let step = this.top; step > 0; step >>= 1) {
      if (at + step > this.list.length || this.tree[at + step] > i) continue;
      at += step;
      i -= this.tree[at];
    }
    for (let k = at + 1; k <= this.list.length; k += k & -k) this.tree[k]--;
    this.length--;
    return this.list[at];
  }
}

// selectFor returns the winners as a proof document has them, by what it says. Its list must be in order.
export function selectFor({ secret, campaign_id, root, beacon, rules: { prizes }, sold }) {
  const wanted = new Set(prizes.map((prize) => prize.layer));
  const found = new Map(); // layer → indexes into the sold list, in column order
  for (let i = 0; i < sold.length; i++) {
    const [layer] = sold.position(i);
    if (!wanted.has(layer)) continue;
    if (!found.has(layer)) found.set(layer, []);
    found.get(layer).push(i);
  }
  const candidates = new Map();
  for (const [layer, indexes] of found) candidates.set(layer, new Candidates(indexes));
  const randomness = beacon ? unhex(beacon.randomness) : new Uint8Array(0);
  const stream = numbers(hmac(sha256, unhex(secret), concat(utf8(version + " entropy\0"), unhex(campaign_id), unhex(root), randomness)));
  return prizes.map(({ number: prize, name, layer }) => {
    const left = candidates.get(layer);
    if (!left || left.length === 0) return { prize, name, layer, awarded: false };
    const won = left.take(below(stream, left.length));
    return { prize, name, layer, column: sold.position(won)[1], purchase_id: uuid(sold.purchaseID(won)) };
  });
}
