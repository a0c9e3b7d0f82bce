// Bytes and their spellings. Numbers are big-endian; hex is in lower case.

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
