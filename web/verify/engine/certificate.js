// Certificates (RFC 5280) of the authorities that timestamp.

import { List, TokenError, UnknownError, bits, boolean, integer, oid, tags, time } from "./der.js";
import { algorithm, verify } from "./signature.js";
import { equal, hex } from "./bytes.js";

const basicConstraints = "2.5.29.19", keyUsage = "2.5.29.15", extendedKeyUsage = "2.5.29.37";
const timeStamping = "1.3.6.1.5.5.7.3.8", anyUsage = "2.5.29.37.0";
// Critical extensions that need no look, or are looked at below.
const known = new Set([basicConstraints, keyUsage, extendedKeyUsage, "2.5.29.14", "2.5.29.17", "2.5.29.32", "2.5.29.35"]);
const longest = 6; // certificates from the signer to the root

// readCertificate returns what a chain needs of a certificate.
export function readCertificate(node) {
  const outer = new List(node, "a certificate");
  const signed = outer.take(tags.sequence);
  const signatureAlgorithm = algorithm(outer.take());
  const signature = bits(outer.take());
  outer.end();
  const list = new List(signed, "a certificate");
  list.optional(0xa0); // version
  const serial = hex(list.take(tags.integer).content);
  list.take(tags.sequence); // the signature's algorithm, again
  const issuer = list.take(tags.sequence).raw;
  const validity = new List(list.take(), "a certificate's validity");
  const from = time(validity.take()), until = time(validity.take());
  const subject = list.take(tags.sequence).raw;
  const key = list.take(tags.sequence);
  list.optional(0x81);
  list.optional(0x82);
  const extensions = readExtensions(list.optional(0xa3));
  list.end();
  return { der: node.raw, signed: signed.raw, signatureAlgorithm, signature, serial, issuer, subject, from, until, key, extensions };
}

function readExtensions(node) {
  const extensions = new Map();
  for (const one of node?.children()[0]?.children() ?? []) {
    const list = new List(one, "an extension");
    const id = oid(list.take());
    const marked = list.optional(tags.boolean);
    const value = list.take(tags.octets);
    list.end();
    if (extensions.has(id)) throw new TokenError("a certificate has an extension twice");
    extensions.set(id, { critical: marked ? boolean(marked) : false, value });
  }
  return extensions;
}

const inside = (extension) => extension.value.children()[0];

// usages returns what a certificate is for, or null if it does not say.
function usages(certificate) {
  const extension = certificate.extensions.get(extendedKeyUsage);
  return extension ? inside(extension).children().map(oid) : null;
}

// checkSigner throws unless a certificate is for timestamps and for nothing else (RFC 3161, 2.3).
export function checkSigner(certificate) {
  const found = usages(certificate);
  if (!found || found.length !== 1 || found[0] !== timeStamping || !certificate.extensions.get(extendedKeyUsage).critical) {
    throw new TokenError("its signer's certificate is not for timestamps alone");
  }
  const extension = certificate.extensions.get(keyUsage);
  if (extension && !(inside(extension).content[1] & 0xc0)) throw new TokenError("its signer's certificate is not for signatures");
}

function checkIssuer(certificate, below) {
  const extension = certificate.extensions.get(basicConstraints);
  const list = extension ? new List(inside(extension), "a certificate's constraints") : null;
  const marked = list?.optional(tags.boolean);
  if (!marked || !boolean(marked)) throw new TokenError("a certificate in its chain may not issue others");
  const bound = list.optional(tags.integer);
  if (bound && integer(bound) < BigInt(below)) throw new TokenError("its chain is longer than a certificate allows");
  const usage = certificate.extensions.get(keyUsage);
  if (usage && !(inside(usage).content[1] & 0x04)) throw new TokenError("a certificate in its chain may not issue others");
  const found = usages(certificate);
  if (found && !found.includes(timeStamping) && !found.includes(anyUsage)) throw new TokenError("a certificate in its chain is not for timestamps");
}

function checkOne(certificate, at) {
  if (at < certificate.from || at > certificate.until) throw new TokenError("a certificate in its chain was not valid at that time");
  for (const [id, { critical }] of certificate.extensions) {
    if (critical && !known.has(id)) throw new UnknownError(`the critical extension ${id} of a certificate`);
  }
}

// rootOf returns the certificate at which a chain from the signer ends: one whose hash isRoot
// knows. Each certificate of it must be valid at that time. It throws if there is none.
export function rootOf(signer, others, at, isRoot) {
  let problem = new TokenError("none of its certificates is that of an authority in the rules");
  const follow = (certificate, chain) => {
    try {
      checkOne(certificate, at);
    } catch (error) {
      problem = error;
      return null;
    }
    if (isRoot(certificate.der)) return certificate;
    if (chain.length >= longest) return null;
    for (const issuer of others) {
      if (chain.includes(issuer) || !equal(issuer.subject, certificate.issuer)) continue;
      try {
        checkIssuer(issuer, chain.length - 1);
        if (!verify(issuer.key, certificate.signatureAlgorithm, null, certificate.signed, certificate.signature)) throw new TokenError("a certificate in its chain is not signed by its issuer");
      } catch (error) {
        problem = error;
        continue;
      }
      const root = follow(issuer, [...chain, issuer]);
      if (root) return root;
    }
    return null;
  };
  const root = follow(signer, [signer]);
  if (!root) throw problem;
  return root;
}
