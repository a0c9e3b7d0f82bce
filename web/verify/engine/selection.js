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

// select returns the winners as a proof document has them. The sold list must be in order.
export function select(prizes, sold, entropy) {
  const wanted = new Set(prizes.map((prize) => prize.layer));
  const candidates = new Map(); // layer → indexes into the sold list, in column order
  for (let i = 0; i < sold.length; i++) {
    const [layer] = sold.position(i);
    if (!wanted.has(layer)) continue;
    if (!candidates.has(layer)) candidates.set(layer, []);
    candidates.get(layer).push(i);
  }
  const stream = numbers(entropy);
  return prizes.map(({ number: prize, name, layer }) => {
    const left = candidates.get(layer) ?? [];
    if (left.length === 0) return { prize, name, layer, awarded: false };
    const [won] = left.splice(below(stream, left.length), 1);
    return { prize, name, layer, column: sold.position(won)[1], purchase_id: uuid(sold.purchaseID(won)) };
  });
}

// selectFor selects with what a proof document says.
export function selectFor(document) {
  const randomness = document.beacon ? unhex(document.beacon.randomness) : new Uint8Array(0);
  const entropy = entropyOf(unhex(document.secret), unhex(document.campaign_id), unhex(document.root), randomness);
  return select(document.rules.prizes, document.sold, entropy);
}
