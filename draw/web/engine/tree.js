// The Merkle tree of RFC 9162 over the leaves of the sold list.

import { sha256 } from "@noble/hashes/sha2.js";
import { equal } from "./bytes.js";

export const leafSize = 56; // layer (4), column (4), purchase id (16), holder (32)

export function leafHash(leaf) {
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
