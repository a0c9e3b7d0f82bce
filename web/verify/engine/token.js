// Timestamp tokens (RFC 3161): signed statements that a hash was there at a time.

import { sha1 } from "@noble/hashes/legacy.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { equal, hex } from "./bytes.js";
import { authorityOf, checkSigner, readCertificate, readExtensions } from "./certificate.js";
import { List, TokenError, boolean, integer, oid, parse, small, tags, time } from "./der.js";
import { algorithm, hashOf, verify } from "./signature.js";

const signedData = "1.2.840.113549.1.7.2", tstInfo = "1.2.840.113549.1.9.16.1.4";
const contentType = "1.2.840.113549.1.9.3", messageDigest = "1.2.840.113549.1.9.4";
const signingCertificate = "1.2.840.113549.1.9.16.2.12", signingCertificateV2 = "1.2.840.113549.1.9.16.2.47";

const longest = 65536; // bytes of a token
const mostCertificates = 8;
const mostVersion = 0x7fffffffn; // of data and signer; it is not looked at

// checkToken returns {authority, time, accuracy} of a token over a SHA-256 hash: authority is the
// hash of the root certificate, one of authorities (a Set; both hex); time and accuracy are in
// microseconds. It throws a TokenError.
export function checkToken(der, digest, authorities) {
  if (der.length > longest) throw new TokenError(`it has more than ${longest} bytes`);
  const { content, certificates, signer } = readSignedData(der);
  const certificate = certificates.find((c) => signer.isBy(c));
  if (!certificate) throw new TokenError("it does not hold its signer's certificate");
  checkAttributes(signer, content, certificate);
  const signed = signer.attributes.raw.slice();
  signed[0] = tags.set; // what is signed has the tag of a set
  if (!verify(certificate.key, signer.signatureAlgorithm, signer.digest, signed, signer.signature)) throw new TokenError("its signature is wrong");
  const info = readInfo(content, digest);
  checkSigner(certificate);
  return { authority: authorityOf(certificate, certificates, info.time, authorities), ...info };
}

function readSignedData(der) {
  const outer = new List(parse(der), "the token");
  if (oid(outer.take()) !== signedData) throw new TokenError("it is not signed data");
  const wrapped = new List(outer.take(0xa0), "the token", 0xa0);
  outer.end();
  const list = new List(wrapped.take(), "the signed data");
  wrapped.end();
  small(list.take(tags.integer), mostVersion);
  list.take(tags.set);
  const encapsulated = new List(list.take(), "the content");
  if (oid(encapsulated.take()) !== tstInfo) throw new TokenError("it is not a timestamp");
  const explicit = new List(encapsulated.take(0xa0), "the content", 0xa0);
  const content = explicit.take(tags.octets).content;
  explicit.end();
  encapsulated.end();
  const held = list.optional(0xa0)?.children() ?? [];
  if (held.length > mostCertificates) throw new TokenError(`it has more than ${mostCertificates} certificates`);
  const certificates = held.map(readCertificate); // throws for what is no certificate
  list.optional(0xa1); // lists of revoked certificates
  const signers = list.take(tags.set).children();
  list.end();
  if (signers.length !== 1) throw new TokenError("it must have one signer");
  return { content, certificates, signer: readSigner(signers[0]) };
}

function readSigner(node) {
  const list = new List(node, "the signer");
  small(list.take(tags.integer), mostVersion);
  const name = list.take();
  const digest = algorithm(list.take());
  const attributes = list.take(0xa0);
  const signatureAlgorithm = algorithm(list.take());
  const signature = list.take(tags.octets).content;
  list.optional(0xa1);
  list.end();
  return { digest, attributes, signatureAlgorithm, signature, isBy: matcher(name) };
}

function matcher(name) {
  if (name.is(0x80)) throw new TokenError("its signer is not named by issuer and serial number");
  const list = new List(name, "the signer's name");
  const issuer = list.take(tags.sequence).raw, serial = hex(list.take(tags.integer).content);
  list.end();
  return (c) => c.serial === serial && equal(c.issuer, issuer);
}

// checkAttributes holds the signed attributes against content and certificate.
function checkAttributes(signer, content, certificate) {
  const attributes = new Map();
  for (const one of signer.attributes.children()) {
    const list = new List(one, "an attribute");
    const id = oid(list.take());
    const values = list.take(tags.set).children();
    list.end();
    if (attributes.has(id) || values.length !== 1) throw new TokenError("it has an attribute twice");
    attributes.set(id, values[0]);
  }
  const type = attributes.get(contentType), digest = attributes.get(messageDigest);
  if (!type || oid(type) !== tstInfo) throw new TokenError("its signature is over something else");
  if (!digest?.is(tags.octets) || !equal(digest.content, hashOf(signer.digest)(content))) throw new TokenError("its signature is over another content");
  checkSigningCertificate(attributes, certificate);
}

// checkSigningCertificate: the signature says by hash which certificate it is with (RFC 5035).
function checkSigningCertificate(attributes, certificate) {
  const v2 = attributes.get(signingCertificateV2), v1 = attributes.get(signingCertificate);
  if (!v2 && !v1) throw new TokenError("its signature does not name its certificate");
  for (const [attribute, standard] of [[v2, sha256], [v1, sha1]]) {
    if (!attribute) continue;
    const lists = new List(attribute, "the name of the signer's certificate");
    const first = new List(new List(lists.take(), lists.what).take(), lists.what);
    lists.optional(tags.sequence); // policies
    lists.end();
    const named = attribute === v2 ? first.optional(tags.sequence) : null;
    const hash = named ? hashOf(algorithm(named)) : standard;
    if (!equal(first.take(tags.octets).content, hash(certificate.der))) throw new TokenError("its signature names another certificate");
    first.optional(tags.sequence); // issuer and serial number, again
    first.end();
  }
}

function readInfo(content, digest) {
  const list = new List(parse(content), "the statement");
  if (integer(list.take(tags.integer)) !== 1n) throw new TokenError("its statement has a version that is not known");
  oid(list.take()); // policy
  const imprint = new List(list.take(), "the statement's hash");
  if (hashOf(algorithm(imprint.take())) !== sha256 || !equal(imprint.take(tags.octets).content, digest)) throw new TokenError("it is over another hash than freeze_hash");
  imprint.end();
  integer(list.take(tags.integer)); // serial number
  const at = time(list.take(tags.time));
  const accuracy = list.optional(tags.sequence);
  const ordering = list.optional(tags.boolean);
  if (ordering) boolean(ordering);
  const nonce = list.optional(tags.integer);
  if (nonce) integer(nonce);
  list.optional(0xa0); // the authority's name
  const extensions = list.optional(0xa1);
  list.end();
  for (const [id, { critical }] of extensions ? readExtensions(extensions) : []) {
    if (critical) throw new TokenError(`its statement has the critical extension ${id}, which is not accepted`);
  }
  return { time: at, accuracy: accuracy ? readAccuracy(accuracy) : 0n };
}

function readAccuracy(node) {
  const list = new List(node, "the accuracy");
  let sum = 0n;
  for (const [tag, unit, most] of [[tags.integer, 1_000_000n, 1_000_000_000n], [0x80, 1000n, 999n], [0x81, 1n, 999n]]) {
    const found = list.optional(tag);
    if (found) sum += small(found, most) * unit;
  }
  list.end();
  return sum;
}
