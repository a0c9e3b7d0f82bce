// Certificates (RFC 5280) of the authorities that timestamp.

import { sha256 } from "@noble/hashes/sha2.js";
import { List, TokenError, bits, boolean, flags, integer, oid, small, tags, wholeTime } from "./der.js";
import { algorithm, verify } from "./signature.js";
import { equal, hex } from "./bytes.js";

const basicConstraints = "2.5.29.19", keyUsage = "2.5.29.15", extendedKeyUsage = "2.5.29.37";
const timeStamping = "1.3.6.1.5.5.7.3.8", anyUsage = "2.5.29.37.0";
// Critical extensions that need no look, or are looked at below.
const known = new Set([basicConstraints, keyUsage, extendedKeyUsage, "2.5.29.14", "2.5.29.17", "2.5.29.32", "2.5.29.35"]);
// Extensions that limit what an issuer may issue: a chain with one of them is refused.
const limits = ["2.5.29.30", "2.5.29.33", "2.5.29.36", "2.5.29.54"];

// readCertificate returns what a chain needs of a certificate.
export function readCertificate(node) {
  const outer = new List(node, "a certificate");
  const signed = outer.take(tags.sequence);
  const named = outer.take(tags.sequence);
  const signature = bits(outer.take());
  outer.end();
  const list = new List(signed, "a certificate");
  const version = list.optional(0xa0);
  if (version) small(only(version, tags.integer), 2n); // the third
  const serial = list.take(tags.integer);
  integer(serial);
  if (!equal(list.take(tags.sequence).raw, named.raw)) throw new TokenError("a certificate names two signature algorithms");
  const issuer = list.take(tags.sequence).raw;
  const validity = new List(list.take(), "a certificate's validity");
  const from = wholeTime(validity.take()), until = wholeTime(validity.take());
  validity.end();
  const subject = list.take(tags.sequence).raw;
  const key = list.take(tags.sequence);
  for (const tag of [0x81, 0x82]) list.optional(tag); // numbers of issuer and subject
  const held = list.optional(0xa3);
  list.end();
  return {
    der: node.raw, signed: signed.raw, signatureAlgorithm: algorithm(named), signature, serial: hex(serial.content), issuer, subject, from, until, key,
    extensions: held ? readExtensions(only(held, tags.sequence)) : new Map(),
  };
}

// only returns the one value inside another.
function only(node, tag) {
  const list = new List(node, "a value of a certificate", node.tag);
  const value = list.take(tag);
  list.end();
  return value;
}

// readExtensions returns {critical, value} by the name of each extension inside a value.
export function readExtensions(node) {
  const extensions = new Map();
  for (const one of node.children()) {
    const list = new List(one, "an extension");
    const id = oid(list.take());
    const marked = list.optional(tags.boolean);
    const value = list.take(tags.octets);
    list.end();
    if (extensions.has(id)) throw new TokenError("it has an extension twice");
    extensions.set(id, { critical: marked ? boolean(marked) : false, value });
  }
  return extensions;
}

const inside = (extension) => only(extension.value);

// usages returns what a certificate is for, or null if it does not say.
function usages(certificate) {
  const extension = certificate.extensions.get(extendedKeyUsage);
  return extension ? new List(inside(extension), "a certificate's usage").nodes.map(oid) : null;
}

// mayUse tells whether the key usage of a certificate has one of these flags, or is not there.
function mayUse(certificate, wanted) {
  const extension = certificate.extensions.get(keyUsage);
  return !extension || (flags(inside(extension)) & wanted) !== 0;
}

// checkSigner throws unless a certificate is for timestamps and for nothing else (RFC 3161, 2.3).
export function checkSigner(certificate) {
  const found = usages(certificate);
  if (!found || found.length !== 1 || found[0] !== timeStamping || !certificate.extensions.get(extendedKeyUsage).critical) {
    throw new TokenError("its signer's certificate is not for timestamps alone");
  }
  if (!mayUse(certificate, 0xc0)) throw new TokenError("its signer's certificate is not for signatures");
}

// checkIssuer takes how many certificates stand between the issuer and the signer.
function checkIssuer(certificate, between) {
  const extension = certificate.extensions.get(basicConstraints);
  const list = extension ? new List(inside(extension), "a certificate's constraints") : null;
  const marked = list?.optional(tags.boolean);
  if (!marked || !boolean(marked)) throw new TokenError("a certificate in its chain may not issue others");
  const bound = list.optional(tags.integer);
  list.end();
  if (bound && small(bound, 0x7fffffffn) < BigInt(between)) throw new TokenError("its chain is longer than a certificate allows");
  if (!mayUse(certificate, 0x04)) throw new TokenError("a certificate in its chain may not issue others");
  const found = usages(certificate);
  if (found && !found.includes(timeStamping) && !found.includes(anyUsage)) throw new TokenError("a certificate in its chain is not for timestamps");
}

function checkOne(certificate, at) {
  if (at < certificate.from || at > certificate.until) throw new TokenError("a certificate in its chain was not valid at that time");
  for (const [id, { critical }] of certificate.extensions) {
    if (limits.includes(id) || (critical && !known.has(id))) throw new TokenError(`a certificate in its chain has the extension ${id}, which is not accepted`);
  }
}

// authorityOf returns the hash (hex) of the certificate at which the chain from the signer ends:
// the first that authorities (a Set) has. Each next one is that with the issuer's name, so there
// is one chain. Each certificate of it must be valid at that time.
export function authorityOf(signer, certificates, at, authorities) {
  const named = new Map(certificates.map((c) => [hex(c.subject), c]));
  if (named.size < certificates.length) throw new TokenError("two of its certificates have one subject");
  let certificate = signer;
  for (let between = 0; between < certificates.length; between++) {
    checkOne(certificate, at);
    const hash = hex(sha256(certificate.der));
    if (authorities.has(hash)) return hash;
    const issuer = named.get(hex(certificate.issuer));
    if (!issuer) break;
    checkIssuer(issuer, between);
    if (!verify(issuer.key, certificate.signatureAlgorithm, null, certificate.signed, certificate.signature)) throw new TokenError("a certificate in its chain is not signed by its issuer");
    certificate = issuer;
  }
  throw new TokenError("none of its certificates is that of an authority in the rules");
}
