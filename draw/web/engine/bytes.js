// Bytes, numbers and times, and their spellings. Numbers are big-endian; hex is in lower case.

const digits = "0123456789abcdef";
const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

export function hex(bytes) {
  let text = "";
  for (const b of bytes) text += digits[b >> 4] + digits[b & 15];
  return text;
}

const valueOf = (code) => (code < 58 ? code - 48 : code - 87);

// putHex writes hex text, which must be valid, into target at offset. Hyphens of a UUID are skipped.
export function putHex(text, target, offset) {
  for (let i = 0; i < text.length; ) {
    if (text.charCodeAt(i) === 45) {
      i++;
      continue;
    }
    target[offset++] = (valueOf(text.charCodeAt(i)) << 4) | valueOf(text.charCodeAt(i + 1));
    i += 2;
  }
}

export function unhex(text) {
  const bytes = new Uint8Array(text.replaceAll("-", "").length / 2);
  putHex(text, bytes, 0);
  return bytes;
}

// uuid returns 16 bytes as a UUID.
export function uuid(bytes) {
  const text = hex(bytes);
  return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join("-");
}

export function u32(n) {
  return Uint8Array.of(n >>> 24, n >>> 16, n >>> 8, n);
}

// u64 takes a safe integer or a BigInt.
export function u64(n) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(n));
  return bytes;
}

export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function equal(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

// microseconds returns a time of a document, such as 2006-01-02T15:04:05.000000Z, in microseconds
// since 1970 as BigInt; null for another text.
export function microseconds(text) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/.exec(text);
  if (!found) return null;
  const milliseconds = Date.parse(found[1] + "Z");
  if (found[1].startsWith("0000") || Number.isNaN(milliseconds) || new Date(milliseconds).toISOString() !== found[1] + ".000Z") return null; // such as 31 February
  return BigInt(milliseconds) * 1000n + BigInt(found[2]);
}

const day = 86_400_000_000n;
const latest = 100_000_000n * day; // what a Date can show

// show returns a time for people.
export function show(us) {
  if (us > latest || us < -latest) return `${us} µs after 1970`;
  return new Date(Number(us / 1000n)).toISOString().replace("T", " ").replace(/\.000Z$/, "").replace("Z", "") + " UTC";
}
