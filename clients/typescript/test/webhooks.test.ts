import assert from "node:assert/strict";
import { test } from "node:test";

import { Webhook } from "standardwebhooks";

import { verifyWebhook, WebhookVerificationError } from "../src/index.js";

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const body = JSON.stringify({ type: "purchase.completed", timestamp: "2026-01-01T00:00:00Z", data: { id: "p", user_id: "ä" } });
const now = 1_767_225_600_000;

/** Signs as the library of the standard does. */
function signed(by: string[], at = now): Record<string, string> {
  const date = new Date(at);
  return {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(Math.floor(at / 1000)),
    "webhook-signature": by.map((one) => new Webhook(one).sign("msg_1", date, body)).join(" "),
  };
}

test("what the library of the standard has signed is verified", async () => {
  const event = await verifyWebhook(body, signed([secret]), secret, { now });
  assert.equal(event.id, "msg_1");
  assert.equal(event.type, "purchase.completed");
  const bytes = new TextEncoder().encode(body);
  assert.equal((await verifyWebhook(bytes, new Headers(signed([secret])), secret, { now })).timestamp, "2026-01-01T00:00:00Z");
});

test("the vector of the standard is verified", async () => {
  const headers = { "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330", "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" };
  // It has no type, so it is no event; but its signature is right, which is looked at first.
  await assert.rejects(verifyWebhook('{"test": 2432232314}', headers, secret, { now: 1_614_265_330_000 }), SyntaxError);
  await assert.rejects(verifyWebhook('{"test": 2432232315}', headers, secret, { now: 1_614_265_330_000 }), WebhookVerificationError);
});

test("while a secret is rotated, either is enough", async () => {
  for (const [by, known] of [[[secret, other], [secret]], [[secret, other], [other]], [[other], [secret, other]]] as const) {
    assert.equal((await verifyWebhook(body, signed([...by]), known, { now })).id, "msg_1");
  }
});

test("what was changed, is of somebody else, or old, is refused", async () => {
  const good = signed([secret]);
  const wrong: [string, Record<string, string | undefined>, string][] = [
    ["another body", good, body.replace("completed", "cancelled")],
    ["another id", { ...good, "webhook-id": "msg_2" }, body],
    ["another secret", signed([other]), body],
    ["no signature", { ...good, "webhook-signature": undefined }, body],
    ["of another version", { ...good, "webhook-signature": (good["webhook-signature"] ?? "").replace("v1,", "v2,") }, body],
    ["not base64", { ...good, "webhook-signature": "v1,%%%" }, body],
    ["empty", { ...good, "webhook-signature": "v1," }, body],
    ["too old", signed([secret], now - 301_000), body],
    ["of the future", signed([secret], now + 301_000), body],
    ["no time", { ...good, "webhook-timestamp": "yesterday" }, body],
  ];
  for (const [name, headers, text] of wrong) {
    await assert.rejects(verifyWebhook(text, headers, secret, { now }), WebhookVerificationError, name);
  }
  assert.equal((await verifyWebhook(body, signed([secret], now - 299_000), secret, { now })).id, "msg_1");
  await assert.rejects(verifyWebhook(body, good, [], { now }), TypeError);
  await assert.rejects(verifyWebhook(body, good, "whsec_", { now }), TypeError);
});
