// Verifies webhooks: Standard Webhooks 1.0, with the Web Crypto API of Node.js and browsers.

import type { webhooks } from "./api.gen.js";

type BodyOf<W> = W extends { post: { requestBody: { content: { "application/json": infer Body } } } } ? Body : never;

interface Untyped {
  type: string;
  timestamp: string;
  data: unknown;
}

/** The bodies that the contract names; switch on `type`. */
type Body = string extends keyof webhooks ? Untyped : { [K in keyof webhooks]: BodyOf<webhooks[K]> }[keyof webhooks];

/** An event that was verified. `id` is the same in every attempt and replay: handle each id once. */
export type WebhookEvent = Body & { id: string };

/** Headers, as of a Request of the Fetch standard or of Node.js. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

/** The request is not from who has the secret, or too old. Answer it with 401. */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError";
}

export interface VerifyOptions {
  /** How far the clocks of both sides may be apart; 5 minutes by default. */
  toleranceSeconds?: number;
  /** The time, in milliseconds since 1970: for tests. */
  now?: number;
}

/**
 * Checks who has sent a webhook, and returns its event.
 *
 * @param payload the body as it came: not parsed, nor written anew.
 * @param secrets whsec_…; several while a secret is being rotated.
 */
export async function verifyWebhook(
  payload: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  options: VerifyOptions = {},
): Promise<WebhookEvent> {
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => header(headers, name));
  if (!id || !timestamp || !signatures) {
    throw new WebhookVerificationError("a header is missing: webhook-id, webhook-timestamp or webhook-signature");
  }
  const now = (options.now ?? Date.now()) / 1000;
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(now - Number(timestamp)) > (options.toleranceSeconds ?? 300)) {
    throw new WebhookVerificationError("webhook-timestamp is too far from now");
  }
  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  const signed = joined(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  if (!(await isSigned(signed, signatures, typeof secrets === "string" ? [secrets] : secrets))) {
    throw new WebhookVerificationError("no signature is of a secret that is known");
  }
  return eventOf(id, new TextDecoder().decode(body));
}

function header(headers: WebhookHeaders, name: string): string | undefined {
  if (headers instanceof Headers) {
    return headers.get(name) ?? undefined;
  }
  const value = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return Array.isArray(value) ? value[0] : value;
}

const maxSignatures = 16; // of a request: more would only be work

async function isSigned(signed: Uint8Array<ArrayBuffer>, header: string, secrets: readonly string[]): Promise<boolean> {
  if (secrets.length === 0) {
    throw new TypeError("no secret");
  }
  const given = header.split(" ").filter((one) => one.startsWith("v1,")).slice(0, maxSignatures);
  const signatures = given.map((one) => decoded(one.slice(3))).filter((one) => one !== undefined);
  for (const secret of secrets) {
    const raw = decoded(secret.replace(/^whsec_/, ""));
    if (raw === undefined || raw.length === 0) {
      throw new TypeError("a secret is whsec_ and base64");
    }
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const signature of signatures) {
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) { // in constant time
        return true;
      }
    }
  }
  return false;
}

function eventOf(id: string, text: string): WebhookEvent {
  const event: unknown = JSON.parse(text);
  if (typeof event !== "object" || event === null || !("type" in event) || typeof event.type !== "string" || !("data" in event)) {
    throw new SyntaxError("the webhook is no event: type, timestamp, data");
  }
  return { ...event, id } as WebhookEvent;
}

function decoded(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
