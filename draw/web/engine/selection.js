// From secret, root and randomness to the winners.

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concat, u64, unhex, utf8, uuid } from "./bytes.js";
import { version } from "./form.js";

export function entropyOf(secret, campaignID, root, randomness) {
  return hmac(sha256, secret, concat(utf8(version + " entropy\0"), campaignID, root, randomness));
}

// numbers yields the stream of 64-bit numbers of an entropy.
export function* numbers(entropy) {
  for (let i = 0n; ; i++) {
    const block = hmac(sha256, entropy, concat(utf8(version + " stream\0"), u64(i)));
    const view = new DataView(block.buffer, block.byteOffset, 32);
    for (let at = 0; at < 32; at += 8) yield view.getBigUint64(at);
  }
}

// below returns the next index below n (a number), each equally likely.
export function below(stream, n) {
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

// select returns the winners as a proof document has them. The sold list must be in order.
export function select(prizes, sold, entropy) {
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
  const stream = numbers(entropy);
  return prizes.map(({ number: prize, name, layer }) => {
    const left = candidates.get(layer);
    if (!left || left.length === 0) return { prize, name, layer, awarded: false };
    const won = left.take(below(stream, left.length));
    return { prize, name, layer, column: sold.position(won)[1], purchase_id: uuid(sold.purchaseID(won)) };
  });
}

// selectFor selects with what a proof document says.
export function selectFor(document) {
  const randomness = document.beacon ? unhex(document.beacon.randomness) : new Uint8Array(0);
  const entropy = entropyOf(unhex(document.secret), unhex(document.campaign_id), unhex(document.root), randomness);
  return select(document.rules.prizes, document.sold, entropy);
}
