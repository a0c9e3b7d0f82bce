// Sells a campaign on a running Triprize: API is its address, OPERATOR and APP are keys. A Go test starts it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { cancelled, purchased, Triprize, TriprizeError, type CampaignDraft, type CampaignEvent } from "../src/index.js";

function given(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
}

const patient = { timeoutMs: 600_000, retry: { elapsedMs: 600_000 } }; // on any machine
const operator = new Triprize({ baseUrl: given("API"), credential: given("OPERATOR"), ...patient });
const app = new Triprize({ baseUrl: given("API"), credential: given("APP"), ...patient });

const draft: CampaignDraft = {
  name: "Three layers",
  base_length: 3,
  currency: "JPY",
  layers: [
    { layer: 1, price: 1000, prizes: [{ name: "A bicycle", count: 1 }] },
    { layer: 2, price: 500, prizes: [] },
    { layer: 3, price: 300, prizes: [] },
  ],
};

async function campaign(): Promise<string> {
  const { id } = await operator.post("/v1/campaigns", { body: draft });
  const published = await operator.post("/v1/campaigns/{campaign}/publish", { path: { campaign: id } });
  assert.equal(published.state, "active");
  return id;
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  const failure = await call.then(() => undefined, (e: unknown) => e);
  assert.ok(failure instanceof TriprizeError, String(failure));
  return failure.code;
}

test("a campaign is sold out, followed, drawn and listed", async (t) => {
  const id = await campaign();
  const at = { path: { campaign: id } };
  const events: CampaignEvent[] = [];
  const boards = new Map<string, string>();
  const over = new AbortController();
  t.after(() => over.abort()); // a stream would keep the process alive, and what has failed would not be told
  const followed = (async () => {
    for await (const event of app.followBoard(id, { signal: over.signal })) {
      events.push(event);
      for (const p of event.board.positions) {
        boards.set(`${p.layer}/${p.column}`, p.state);
      }
    }
  })();

  const hold = await app.hold(id, { user_id: "erin", positions: [{ layer: 1, column: 1 }] });
  assert.equal(hold.state, "active");
  assert.equal((await app.extendHold(hold.id)).extensions, 1);
  const free = await app.hold(id, { user_id: "erin", layer: 2, quantity: 1 });
  await app.releaseHold(free.id);
  await app.releaseHold(free.id); // as after a lost answer
  assert.equal(await codeOf(app.post("/v1/campaigns/{campaign}/holds", { ...at, body: { user_id: "mallory", positions: [{ layer: 1, column: 1 }] } })), "position-taken");

  const bought = purchased(await app.buyHold(hold, { method: "external" }));
  assert.equal(bought.amount, 1000);
  const order = { user_id: "ada", selection: { layer: 3, quantity: 3 }, payment: { method: "external" as const } };
  const first = purchased(await app.buy(id, order, { key: `order-1-${id}` }));
  const again = purchased(await app.buy(id, order, { key: `order-1-${id}` }));
  assert.deepEqual(again, first); // one purchase, however often it is sent

  const back = cancelled(await app.cancel(first.purchase_id, { reason: "the buyer changed her mind" }));
  assert.equal(back.positions.length, 3);
  const twice = await app.cancel(first.purchase_id);
  assert.equal(twice.problem?.code, "state-conflict");

  const since = { ...at, query: { min_version: back.board_version } }; // without it the first board may be an older copy
  const tag = await app.getIfChanged("/v1/campaigns/{campaign}/positions", undefined, since);
  assert.ok(tag?.etag);
  assert.equal(await app.getIfChanged("/v1/campaigns/{campaign}/positions", tag.etag, since), undefined);

  const job = await app.post("/v1/campaigns/{campaign}/purchases", { ...at, body: { ...order, user_id: "grace" } });
  const states: string[] = [];
  for await (const now of app.followJob(job.id)) {
    states.push(now.state);
  }
  assert.equal(states.at(-1), "succeeded");
  assert.equal(purchased(await app.wait(job.id)).positions.length, 3);

  assert.throws(() => purchased({ ...job, state: "queued", result: null, problem: null }));
  purchased(await app.buy(id, { user_id: "linus", selection: { layer: 2, quantity: 2 }, payment: { method: "external" } }));
  await followed; // until it is completed
  assert.equal(events.at(-1)?.state, "completed");
  assert.deepEqual([...boards.values()], Array<string>(6).fill("sold"));

  assert.equal(await codeOf(app.buy(id, { ...order, user_id: "late" })), "sold-out"); // without a job

  const names = [];
  for await (const one of app.list("/v1/users/{user}/purchases", { path: { user: "ada" }, query: { limit: 1 } })) {
    names.push(one.state);
  }
  assert.deepEqual(names, ["cancelled"]);

  const proof = await app.open("/v1/campaigns/{campaign}/draw/proof", at);
  const document = JSON.parse(await proof.text()) as object;
  assert.ok("freeze_hash" in document);
  const draw = await app.get("/v1/campaigns/{campaign}/draw", at);
  assert.equal(draw.winners?.length, 1);
});

test("wallets move money under the version that was read", async () => {
  const owner = `owner-${Date.now()}-${Math.random()}`;
  const wallet = await app.post("/v1/wallets", { body: { owner_id: owner, currency: "JPY", initial_balance: 5000 } });
  const path = { wallet: wallet.id };
  const credited = await app.post("/v1/wallets/{wallet}/credit", { path, body: { amount: 500 }, version: wallet.version });
  assert.equal(credited.balance, 5500);
  assert.equal(await codeOf(app.post("/v1/wallets/{wallet}/credit", { path, body: { amount: 500 }, version: wallet.version })), "version-mismatch");
  const versions = [];
  for await (const event of app.list("/v1/wallets/{wallet}/events", { path, query: { limit: 1 } })) {
    versions.push(event.version);
  }
  assert.deepEqual(versions, [2, 1]);
});

test("a refusal has its code, and the field at fault", async () => {
  const failure = await app.post("/v1/wallets", { body: { owner_id: "", currency: "JPY" } }).catch((e: unknown) => e);
  assert.ok(failure instanceof TriprizeError);
  assert.equal(failure.code, "invalid-request");
  assert.ok(failure.problem?.errors?.some((one) => one.pointer === "/owner_id"));
  const stranger = new Triprize({ baseUrl: given("API"), credential: "tp_nobody_nothing" });
  assert.equal(await codeOf(stranger.get("/v1/campaigns")), "unauthenticated");
});
