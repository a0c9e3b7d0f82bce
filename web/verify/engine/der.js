// A reader of DER (X.690), strict: one spelling per value, nothing left over.

import { hex } from "./bytes.js";

// TokenError says what is wrong with a timestamp token, or is not accepted in one.
export class TokenError extends Error {}

export const tags = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, null: 0x05, oid: 0x06, utcTime: 0x17, time: 0x18, sequence: 0x30, set: 0x31 };
const deepest = 32;

// Node is one value: its tag, its bytes with the header (raw) and without (content).
class Node {
  constructor(tag, raw, content, depth) {
    this.tag = tag;
    this.raw = raw;
    this.content = content;
    this.depth = depth;
  }

  // children returns the values inside.
  children() {
    const nodes = [];
    for (let at = 0; at < this.content.length; ) {
      const node = readAt(this.content, at, this.depth + 1);
      nodes.push(node);
      at += node.raw.length;
    }
    return nodes;
  }

  is(tag) {
    return this.tag === tag;
  }
}

function readAt(bytes, start, depth) {
  if (depth > deepest) throw new TokenError("its values stand in each other too deep");
  const tag = bytes[start];
  if ((tag & 0x1f) === 0x1f) throw new TokenError("it has a tag above 30");
  let at = start + 1;
  let length = bytes[at++];
  if (length >= 0x80) {
    const size = length & 0x7f;
    if (size === 0 || size > 4) throw new TokenError("it is not DER: a length is not definite, or too long");
    length = 0;
    for (let i = 0; i < size; i++) length = length * 256 + (bytes[at++] ?? NaN);
    if (!(length >= 0x80) || (size > 1 && length < 256 ** (size - 1))) throw new TokenError("it is not DER: a length is not the shortest");
  }
  const end = at + length;
  if (!(end <= bytes.length)) throw new TokenError("it is not DER: it ends too early");
  return new Node(tag, bytes.subarray(start, end), bytes.subarray(at, end), depth);
}

// parse returns the one value that the bytes are.
export function parse(bytes) {
  const node = readAt(bytes, 0, 0);
  if (node.raw.length !== bytes.length) throw new TokenError("there is something after its end");
  return node;
}

// List takes the members of a sequence in order.
export class List {
  constructor(node, what, tag = tags.sequence) {
    if (!node.is(tag)) throw new TokenError(`${what} is not what it must be`);
    this.what = what;
    this.nodes = node.children();
    this.next = 0;
  }

  take(tag) {
    const node = this.nodes[this.next++];
    if (!node || (tag !== undefined && !node.is(tag))) throw new TokenError(`${this.what} has another form than it must have`);
    return node;
  }

  // optional takes the next member if it has this tag, or returns null.
  optional(tag) {
    return this.nodes[this.next]?.is(tag) ? this.nodes[this.next++] : null;
  }

  end() {
    if (this.next < this.nodes.length) throw new TokenError(`${this.what} has more members than it must have`);
  }
}

const longestOID = 32; // bytes that are read as numbers

// oid returns an OBJECT IDENTIFIER with dots, a very long one in hex.
export function oid(node) {
  if (!node.is(tags.oid) || node.content.length === 0) throw new TokenError("it has no object identifier where one must be");
  const parts = [];
  let value = 0n, begun = false;
  for (const b of node.content) {
    if (!begun && b === 0x80) throw new TokenError("it is not DER: an object identifier is not the shortest");
    begun = b >= 0x80;
    if (node.content.length > longestOID) continue;
    value = value * 128n + BigInt(b & 0x7f);
    if (begun) continue;
    parts.push(value);
    value = 0n;
  }
  if (begun) throw new TokenError("it has an object identifier without its end");
  if (parts.length === 0) return hex(node.content);
  const first = parts[0] < 80n ? parts[0] / 40n : 2n;
  return [first, parts[0] - 40n * first, ...parts.slice(1)].join(".");
}

// integer returns an INTEGER as BigInt. With content only (an implicit tag) pass the node all the same.
export function integer(node) {
  const c = node.content;
  if (c.length === 0) throw new TokenError("it has a number without digits");
  if (c.length > 1 && ((c[0] === 0 && c[1] < 0x80) || (c[0] === 0xff && c[1] >= 0x80))) throw new TokenError("it is not DER: a number is not the shortest");
  const value = BigInt("0x" + hex(c)); // byte by byte, a long one would take long
  return c[0] & 0x80 ? value - (1n << BigInt(8 * c.length)) : value;
}

// small returns an INTEGER from 0 to most, both BigInt.
export function small(node, most) {
  const value = integer(node);
  if (value < 0n || value > most) throw new TokenError(`it has a number that is not from 0 to ${most}`);
  return value;
}

export function boolean(node) {
  if (node.content.length !== 1 || (node.content[0] !== 0 && node.content[0] !== 0xff)) throw new TokenError("it is not DER: a truth value is neither");
  return node.content[0] === 0xff;
}

// bits returns the bytes of a BIT STRING of whole bytes.
export function bits(node) {
  if (!node.is(tags.bits) || node.content[0] !== 0) throw new TokenError("it has a bit string that is not of whole bytes");
  return node.content.subarray(1);
}

// flags returns the first eight of a BIT STRING; the first is 0x80.
export function flags(node) {
  const [unused, ...bytes] = node.content;
  const loose = bytes.length === 0 ? unused : bytes.at(-1) & ((1 << unused) - 1);
  if (!node.is(tags.bits) || !(unused < 8) || loose !== 0) throw new TokenError("it has a bit string that is not DER");
  return bytes[0] ?? 0;
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true }); // a byte order mark is no part of a time

// wholeTime returns the time of a certificate: a UTCTime or GeneralizedTime without a fraction.
export function wholeTime(node) {
  const text = decoder.decode(node.content);
  if (text.includes(".")) throw new TokenError("a certificate has a time with a fraction of a second");
  return node.is(tags.utcTime) ? microseconds((Number(text.slice(0, 2)) >= 50 ? "19" : "20") + text) : time(node);
}

// time returns a GeneralizedTime in microseconds since 1970.
export function time(node) {
  if (!node.is(tags.time)) throw new TokenError("it has no time where one must be");
  return microseconds(decoder.decode(node.content));
}

function microseconds(text) {
  const found = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{0,8}[1-9]))?Z$/.exec(text);
  const iso = found && `${found[1]}-${found[2]}-${found[3]}T${found[4]}:${found[5]}:${found[6]}.000Z`;
  const milliseconds = found ? Date.parse(iso) : NaN;
  if (Number.isNaN(milliseconds) || text.startsWith("0000") || new Date(milliseconds).toISOString() !== iso) throw new TokenError(`${JSON.stringify(text)} is no time`);
  const nanoseconds = BigInt((found[7] ?? "").padEnd(9, "0"));
  return BigInt(milliseconds) * 1000n + (nanoseconds + 999n) / 1000n; // a finer time counts as the later microsecond
}
