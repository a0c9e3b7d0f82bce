// A chain of drand, scheme bls-unchained-g1-rfc9380.

import { bls12_381 } from "@noble/curves/bls12-381.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concat, hex, u32, u64, unhex, utf8 } from "./bytes.js";

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
