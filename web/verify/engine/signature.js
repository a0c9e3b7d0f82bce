// Signatures of timestamp tokens and certificates: RSA (PKCS #1 v1.5 and PSS) and ECDSA on
// the curves of NIST. Others, and SHA-1, are not known here.

import { p256, p384, p521 } from "@noble/curves/nist.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
import { concat, equal, hex, u32 } from "./bytes.js";
import { List, TokenError, UnknownError, bits, integer, oid, parse, tags } from "./der.js";

const hashes = {
  "2.16.840.1.101.3.4.2.1": { hash: sha256, prefix: "3031300d060960864801650304020105000420" },
  "2.16.840.1.101.3.4.2.2": { hash: sha384, prefix: "3041300d060960864801650304020205000430" },
  "2.16.840.1.101.3.4.2.3": { hash: sha512, prefix: "3051300d060960864801650304020305000440" },
};
const rsaWith = { "1.2.840.113549.1.1.11": "2.16.840.1.101.3.4.2.1", "1.2.840.113549.1.1.12": "2.16.840.1.101.3.4.2.2", "1.2.840.113549.1.1.13": "2.16.840.1.101.3.4.2.3" };
const ecdsaWith = { "1.2.840.10045.4.3.2": "2.16.840.1.101.3.4.2.1", "1.2.840.10045.4.3.3": "2.16.840.1.101.3.4.2.2", "1.2.840.10045.4.3.4": "2.16.840.1.101.3.4.2.3" };
const rsa = "1.2.840.113549.1.1.1", pss = "1.2.840.113549.1.1.10", mgf1 = "1.2.840.113549.1.1.8", ec = "1.2.840.10045.2.1";
const curves = { "1.2.840.10045.3.1.7": p256, "1.3.132.0.34": p384, "1.3.132.0.35": p521 };

// algorithm returns {id, parameters} of an AlgorithmIdentifier; parameters may be null.
export function algorithm(node) {
  const list = new List(node, "the name of an algorithm");
  const id = oid(list.take());
  const parameters = list.next < list.nodes.length ? list.take() : null;
  list.end();
  return { id, parameters };
}

// hashOf returns the function of a hash's AlgorithmIdentifier.
export function hashOf({ id }) {
  if (!Object.hasOwn(hashes, id)) throw new UnknownError(`the hash function ${id}`);
  return hashes[id].hash;
}

// verify tells whether a signature over a message is that of a key (SubjectPublicKeyInfo).
// digest is the AlgorithmIdentifier that CMS states beside it, or null in a certificate.
export function verify(keyInfo, { id, parameters }, digest, message, signature) {
  const info = new List(keyInfo, "a public key");
  const kind = algorithm(info.take());
  const key = bits(info.take());
  info.end();
  if (kind.id === rsa) {
    const [modulus, exponent] = rsaKey(key);
    if (id === pss) return verifyPSS(modulus, exponent, pssOf(parameters, digest), message, signature);
    const hash = id === rsa ? digest?.id : rsaWith[id];
    if (!hash) throw new UnknownError(`the signature algorithm ${id}`);
    agree(hash, digest);
    return verifyPKCS1(modulus, exponent, hash, message, signature);
  }
  if (kind.id === ec && kind.parameters && Object.hasOwn(ecdsaWith, id)) {
    const curve = curves[oid(kind.parameters)];
    if (!curve) throw new UnknownError(`the curve ${oid(kind.parameters)}`);
    agree(ecdsaWith[id], digest);
    return verifyECDSA(curve, key, hashes[ecdsaWith[id]].hash(message), signature);
  }
  throw new UnknownError(`the signature algorithm ${id} with the key ${kind.id}`);
}

function agree(hash, digest) {
  if (!Object.hasOwn(hashes, hash)) throw new UnknownError(`the hash function ${hash}`);
  if (digest && digest.id !== hash) throw new TokenError("its signature names another hash function than its signer");
}

function verifyECDSA(curve, key, hash, signature) {
  try {
    return curve.verify(signature, hash, key, { prehash: false, lowS: false, format: "der" });
  } catch {
    return false; // not DER, or no point of the curve
  }
}

function rsaKey(key) {
  const list = new List(parse(key), "an RSA key");
  const modulus = integer(list.take(tags.integer)), exponent = integer(list.take(tags.integer));
  list.end();
  const size = modulus.toString(2).length;
  if (size < 2048 || size > 8192 || exponent < 3n || exponent >= 1n << 32n || exponent % 2n === 0n) throw new UnknownError(`an RSA key of ${size} bits with the exponent ${exponent}`);
  return [modulus, exponent];
}

function numberOf(bytes) {
  return bytes.length === 0 ? 0n : BigInt("0x" + hex(bytes));
}

// opened returns what an RSA signature holds, as many bytes as the modulus has; or null.
function opened(modulus, exponent, signature) {
  const size = Math.ceil(modulus.toString(2).length / 8);
  let base = numberOf(signature);
  if (signature.length !== size || base >= modulus) return null;
  let result = 1n;
  for (let e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  const text = result.toString(16).padStart(2 * size, "0");
  return Uint8Array.from(text.match(/../g), (byte) => parseInt(byte, 16));
}

function verifyPKCS1(modulus, exponent, hash, message, signature) {
  const block = opened(modulus, exponent, signature);
  if (!block) return false;
  const digest = hex(hashes[hash].hash(message));
  const end = "00" + hashes[hash].prefix + digest;
  return hex(block) === "0001" + "f".repeat(2 * block.length - 4 - end.length) + end;
}

// pssOf returns {hash, salt} of RSASSA-PSS-params. What is left out means SHA-1: not known here.
function pssOf(parameters, digest) {
  if (!parameters) throw new UnknownError("RSA-PSS without parameters");
  const list = new List(parameters, "the parameters of RSA-PSS");
  const inside = (tag) => {
    const found = list.optional(tag);
    return found && found.children().length === 1 ? found.children()[0] : null;
  };
  const [hash, mask, salt, trailer] = [inside(0xa0), inside(0xa1), inside(0xa2), inside(0xa3)];
  list.end();
  if (!hash || !mask || (trailer && integer(trailer) !== 1n)) throw new UnknownError("RSA-PSS with these parameters");
  const named = algorithm(hash), generator = algorithm(mask);
  if (generator.id !== mgf1 || !generator.parameters || algorithm(generator.parameters).id !== named.id) throw new UnknownError("RSA-PSS with these parameters");
  agree(named.id, digest);
  return { hash: hashes[named.id].hash, salt: salt ? Number(integer(salt)) : 20 };
}

// verifyPSS is EMSA-PSS-VERIFY (RFC 8017, 9.1.2).
function verifyPSS(modulus, exponent, { hash, salt }, message, signature) {
  let block = opened(modulus, exponent, signature);
  if (!block) return false;
  const bitsOfBlock = modulus.toString(2).length - 1;
  const size = Math.ceil(bitsOfBlock / 8);
  if (block.length > size) {
    if (block[0] !== 0) return false;
    block = block.subarray(1);
  }
  const h = hash.outputLen;
  if (salt < 0 || size < h + salt + 2 || block[size - 1] !== 0xbc) return false;
  const unused = 0xff >> (8 * size - bitsOfBlock);
  const masked = block.subarray(0, size - h - 1), inner = block.subarray(size - h - 1, size - 1);
  if (masked[0] & ~unused) return false;
  const data = masked.map((b, i) => b ^ mask(hash, inner, i));
  data[0] &= unused;
  const zeros = size - h - salt - 2;
  for (let i = 0; i < zeros; i++) if (data[i] !== 0) return false;
  if (data[zeros] !== 1) return false;
  return equal(inner, hash(concat(new Uint8Array(8), hash(message), data.subarray(zeros + 1))));
}

// mask returns byte i of MGF1.
function mask(hash, seed, i) {
  const block = Math.floor(i / hash.outputLen);
  return hash(concat(seed, u32(block)))[i % hash.outputLen];
}
