// Signatures of timestamp tokens and certificates: RSA (PKCS #1 v1.5) and ECDSA on
// three curves of NIST, with SHA-256, -384 or -512. Nothing else is accepted.

import { p256, p384, p521 } from "@noble/curves/nist.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
import { hex } from "./bytes.js";
import { List, TokenError, bits, integer, oid, parse, tags } from "./der.js";

const hashes = {
  "2.16.840.1.101.3.4.2.1": { hash: sha256, prefix: "3031300d060960864801650304020105000420" },
  "2.16.840.1.101.3.4.2.2": { hash: sha384, prefix: "3041300d060960864801650304020205000430" },
  "2.16.840.1.101.3.4.2.3": { hash: sha512, prefix: "3051300d060960864801650304020305000440" },
};
const rsaWith = { "1.2.840.113549.1.1.11": "2.16.840.1.101.3.4.2.1", "1.2.840.113549.1.1.12": "2.16.840.1.101.3.4.2.2", "1.2.840.113549.1.1.13": "2.16.840.1.101.3.4.2.3" };
const ecdsaWith = { "1.2.840.10045.4.3.2": "2.16.840.1.101.3.4.2.1", "1.2.840.10045.4.3.3": "2.16.840.1.101.3.4.2.2", "1.2.840.10045.4.3.4": "2.16.840.1.101.3.4.2.3" };
const rsa = "1.2.840.113549.1.1.1", ec = "1.2.840.10045.2.1";
const curves = { "1.2.840.10045.3.1.7": p256, "1.3.132.0.34": p384, "1.3.132.0.35": p521 };

// algorithm returns {id, parameters} of an AlgorithmIdentifier; parameters are null if there are none.
export function algorithm(node) {
  const list = new List(node, "the name of an algorithm");
  const id = oid(list.take());
  const parameters = list.next < list.nodes.length ? list.take() : null;
  list.end();
  return { id, parameters };
}

const isNull = (parameters) => parameters.is(tags.null) && parameters.content.length === 0;

// plain returns the id of an algorithm of a hash or a signature: such a one has no parameters, or a NULL.
function plain({ id, parameters }) {
  if (parameters && !isNull(parameters)) throw new TokenError(`it has the algorithm ${id} with parameters, which are not accepted`);
  return id;
}

// hashOf returns the function of a hash's AlgorithmIdentifier.
export function hashOf(named) {
  const id = plain(named);
  if (!Object.hasOwn(hashes, id)) throw new TokenError(`it has the hash function ${id}, which is not accepted`);
  return hashes[id].hash;
}

// verify tells whether a signature over a message is that of a key (SubjectPublicKeyInfo).
// digest is the AlgorithmIdentifier that CMS states beside it, or null in a certificate.
export function verify(keyInfo, named, digest, message, signature) {
  const id = plain(named);
  const info = new List(keyInfo, "a public key");
  const kind = algorithm(info.take());
  const key = bits(info.take());
  info.end();
  const hash = kind.id === rsa ? (id === rsa ? digest?.id : rsaWith[id]) : kind.id === ec ? ecdsaWith[id] : null;
  if (!hash || !Object.hasOwn(hashes, hash)) throw new TokenError(`it has the signature algorithm ${id} with the key ${kind.id}, which is not accepted`);
  if (digest && digest.id !== hash) throw new TokenError("its signature names another hash function than its signer");
  if (kind.id === rsa) {
    if (!kind.parameters || !isNull(kind.parameters)) throw new TokenError("an RSA key has another form than it must have");
    return verifyPKCS1(...rsaKey(key), hash, message, signature);
  }
  const curve = kind.parameters && curves[oid(kind.parameters)];
  if (!curve || key[0] !== 4) throw new TokenError("it has a key of a curve, or in a form, that is not accepted"); // 4: both coordinates
  return verifyECDSA(curve, key, hashes[hash].hash(message), signature);
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
  const size = modulus > 0n ? modulus.toString(2).length : 0;
  if (size < 2048 || size > 8192 || modulus % 2n === 0n || exponent < 3n || exponent >= 1n << 31n || exponent % 2n === 0n) throw new TokenError(`it has an RSA key that is not accepted, of ${size} bits, with the exponent ${exponent}`);
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
