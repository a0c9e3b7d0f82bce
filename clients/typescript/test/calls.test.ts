import assert from "node:assert/strict";
import { test } from "node:test";

import { ApprovalRequested, MalformedError, purchased, Triprize, TriprizeError, UnreachableError, type Job, type PurchaseRequest } from "../src/index.js";
import { campaign, job, jobId, refuse, say, simulate } from "./simulator.js";

const one: PurchaseRequest = { user_id: "ada", selection: { quantity: 1 }, payment: { method: "external" } };

test("a lost answer is asked for again with the same key, and is one purchase", async (t) => {
  const s = await simulate(t, (n, response) => {
    if (n < 3) {
      response.destroy(); // done, and nobody hears of it
    } else {
      say(response, 200, job("succeeded"));
    }
  });
  const bought = purchased(await s.client().buy(campaign, one));
  assert.equal(bought.positions[0]?.column, 2);
  const keys = new Set(s.asked.map((asked) => asked.headers["idempotency-key"]));
  assert.equal(s.asked.length, 3);
  assert.equal(keys.size, 1);
  const released = await simulate(t, (n, response) => (n < 3 ? response.destroy() : response.writeHead(204).end()));
  await released.client().releaseHold(jobId);
  assert.deepEqual(released.asked.map((asked) => asked.method), ["DELETE", "DELETE", "DELETE"]);
});

test("every purchase has a key of its own, or the one that it is given", async (t) => {
  const s = await simulate(t, (_, response) => say(response, 200, job("succeeded")));
  const c = s.client();
  await c.buy(campaign, one);
  await c.buy(campaign, one);
  await c.buy(campaign, one, { key: "order-1" });
  const keys = s.asked.map((asked) => String(asked.headers["idempotency-key"]));
  assert.notEqual(keys[0], keys[1]);
  assert.match(keys[0] ?? "", /^[0-9a-f]{32}$/);
  assert.equal(keys[2], "order-1");
  await assert.rejects(c.buy(campaign, one, { key: "ä" }), MalformedError);
  assert.equal(s.asked.length, 3);
});

test("what may help is tried again, and what cannot help is not", async (t) => {
  for (const [status, attempts] of [[408, 3], [429, 3], [500, 3], [502, 3], [503, 3], [504, 3], [400, 1], [404, 1], [409, 1], [422, 1]] as const) {
    const s = await simulate(t, (_, response) => refuse(response, status, "some-code"));
    const failure = await s.client({ retry: { attempts: 3, firstMs: 0, longestMs: 0 } }).buy(campaign, one).catch((e: unknown) => e);
    assert.ok(failure instanceof TriprizeError);
    assert.equal(failure.status, status);
    assert.equal(failure.code, "some-code");
    assert.equal(failure.requestId, "request-1");
    assert.equal(s.asked.length, attempts, String(status));
  }
});

test("a change without a key is sent again only if it never left", async (t) => {
  const s = await simulate(t, (_, response) => refuse(response, 503, "unavailable"));
  await assert.rejects(s.client().patch("/v1/campaigns/{campaign}", { path: { campaign }, body: { name: "New" } }), TriprizeError);
  assert.equal(s.asked.length, 1);

  let dialled = 0;
  const refused: typeof fetch = () => {
    dialled++;
    return Promise.reject(new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }) }));
  };
  const away = s.client({ fetch: refused, retry: { attempts: 4, firstMs: 0, longestMs: 0 } });
  const failure = await away.patch("/v1/campaigns/{campaign}", { path: { campaign }, body: { name: "New" } }).catch((e: unknown) => e);
  assert.ok(failure instanceof UnreachableError);
  assert.equal(dialled, 4);
});

test("Retry-After is honoured, and is given up when it is longer than the retries may last", async (t) => {
  const s = await simulate(t, (_, response) => refuse(response, 429, "rate-limited", { "Retry-After": "61" }));
  const failure = await s.client({ retry: { elapsedMs: 60_000 } }).buy(campaign, one).catch((e: unknown) => e);
  assert.ok(failure instanceof TriprizeError);
  assert.equal(failure.retryAfterMs, 61_000);
  assert.equal(s.asked.length, 1);
});

test("the error of a call that got no answer has the key to repeat it with", async (t) => {
  const s = await simulate(t, (_, response) => response.destroy());
  const failure = await s.client({ retry: { attempts: 2, firstMs: 0, longestMs: 0 } }).buy(campaign, one, { key: "order-1" }).catch((e: unknown) => e);
  assert.ok(failure instanceof UnreachableError);
  assert.equal(failure.key, "order-1");
  assert.match(failure.message, /order-1/);
});

test("the end of a signal ends a call, its retries and its waits", async (t) => {
  const controller = new AbortController();
  const reason = new Error("the buyer has left");
  const s = await simulate(t, (n, response) => {
    refuse(response, 503, "unavailable", { "Retry-After": "3600" });
    if (n === 1) {
      controller.abort(reason);
    }
  });
  const c = s.client({ retry: { elapsedMs: 1e9 } });
  await assert.rejects(c.buy(campaign, one, { signal: controller.signal }), reason);
  await assert.rejects(c.get("/v1/campaigns", { signal: controller.signal }), reason);
  assert.equal(s.asked.length, 1);
});

test("a job is waited for until it is final, or its buyer has to act", async (t) => {
  const declined = { ...job("awaiting_action"), purchase_id: jobId, next_action: { type: "payment_method", decline: { code: "card_declined" } } };
  const buy = `POST /v1/campaigns/${campaign}/purchases`, pay = `POST /v1/purchases/${jobId}/payment`, get = `GET /v1/jobs/${jobId}`;
  const cases: [(c: Triprize) => Promise<Job>, Record<string, unknown>[], string, string[]][] = [
    [(c) => c.buy(campaign, one), [job("queued"), job("failed")], "failed", [`${buy} wait=30`, `${get} wait=30`]],
    [(c) => c.buy(campaign, one), [declined], "awaiting_action", [`${buy} wait=30`]],
    [(c) => c.pay(jobId, { payment_method: "pm_card_visa" }), [job("queued"), declined], "awaiting_action", [`${pay} wait=30`, `${get} wait=30`]],
    [(c) => c.wait(jobId), [declined, job("succeeded")], "succeeded", [`${get} wait=30; until=final`, `${get} wait=30; until=final`]],
  ];
  for (const [call, answers, state, asked] of cases) {
    const s = await simulate(t, (n, response) => say(response, 200, answers[n - 1]));
    const done = await call(s.client());
    assert.equal(done.state, state);
    assert.equal(done.next_action?.decline?.code, state === "awaiting_action" ? "card_declined" : undefined);
    assert.deepEqual(s.asked.map(({ method, url, headers }) => `${method} ${url} ${String(headers.prefer)}`), asked);
    if (asked[0]?.startsWith(pay)) {
      assert.equal(s.asked[0]?.body, '{"payment_method":"pm_card_visa"}');
    }
    if (state === "failed") {
      assert.throws(() => purchased(done), (e) => e instanceof TriprizeError && e.code === "sold-out" && e.status === 409);
    }
  }
});

test("what has a tag is read again only when it has changed", async (t) => {
  const s = await simulate(t, (_, response, asked) => {
    if (asked.headers["if-none-match"] === 'W/"1"') {
      response.writeHead(304).end();
    } else {
      say(response, 200, { name: "Summer" }, { ETag: 'W/"1"' });
    }
  });
  const c = s.client();
  const first = await c.getIfChanged("/v1/campaigns/{campaign}", undefined, { path: { campaign } });
  assert.equal(first?.value.name, "Summer");
  assert.equal(await c.getIfChanged("/v1/campaigns/{campaign}", first.etag, { path: { campaign } }), undefined);
});

test("pages are turned when they are needed, and no more are read than are wanted", async (t) => {
  const s = await simulate(t, (n, response) => say(response, 200, { campaigns: [{ name: `${2 * n - 1}` }, { name: `${2 * n}` }], next_cursor: n < 3 ? `c${n}` : null }));
  const c = s.client();
  const names: string[] = [];
  for await (const each of c.list("/v1/campaigns", { query: { state: "active" } })) {
    names.push(each.name);
  }
  assert.deepEqual(names, ["1", "2", "3", "4", "5", "6"]);
  assert.equal(s.asked[2]?.url, "/v1/campaigns?state=active&cursor=c2");
  for await (const _ of c.list("/v1/campaigns")) {
    break;
  }
  assert.equal(s.asked.length, 4);
});

test("a page that is its own next page is an error", async (t) => {
  const s = await simulate(t, (_, response) => say(response, 200, { campaigns: [], next_cursor: "same" }));
  await assert.rejects(async () => {
    for await (const _ of s.client().list("/v1/campaigns")) {
      assert.fail("there is nothing in it");
    }
  }, MalformedError);
  assert.equal(s.asked.length, 2);
});

test("a value stays in its segment of the path", async (t) => {
  const s = await simulate(t, (_, response) => say(response, 200, { purchases: [], next_cursor: null }));
  for (const [user, segment] of [["a/b", "a%2Fb"], ["...", "..."], ["?x#y %", "%3Fx%23y%20%25"], ["ü", "%C3%BC"]] as const) {
    await s.client().get("/v1/users/{user}/purchases", { path: { user } });
    assert.equal(s.asked.at(-1)?.url, `/v1/users/${segment}/purchases`);
  }
  for (const user of ["", ".", ".."]) {
    await assert.rejects(s.client().get("/v1/users/{user}/purchases", { path: { user } }), MalformedError);
  }
});

test("a redirect is not followed, and an error of a proxy is an error too", async (t) => {
  const s = await simulate(t, (n, response) => {
    response.writeHead(n === 1 ? 301 : 403, { Location: "https://elsewhere.example/" }).end("<html>");
  });
  for (const status of [301, 403]) {
    const failure = await s.client().buy(campaign, one).catch((e: unknown) => e);
    assert.ok(failure instanceof TriprizeError);
    assert.equal(failure.status, status);
    assert.match(failure.message, /elsewhere\.example/);
  }
  assert.equal(s.asked.length, 2);
});

test("an answer that cannot be used is an error, and is not asked for again", async (t) => {
  for (const body of ["", "null", "{}", "[]", "<html>", '{"id":', "\0", "[".repeat(10_000)]) {
    const s = await simulate(t, (_, response) => response.end(body));
    await assert.rejects(s.client().buy(campaign, one), MalformedError, body.slice(0, 10));
    assert.equal(s.asked.length, 1);
  }
});

test("an answer is bounded", async (t) => {
  const s = await simulate(t, (_, response) => say(response, 200, { name: "x".repeat(1000) }));
  await assert.rejects(s.client({ maxAnswerBytes: 999 }).get("/v1/campaigns/{campaign}", { path: { campaign } }), MalformedError);
  assert.equal((await s.client({ maxAnswerBytes: 2000 }).get("/v1/campaigns/{campaign}", { path: { campaign } })).name.length, 1000);
});

test("a credential can be asked for before each request", async (t) => {
  const s = await simulate(t, (_, response) => say(response, 200, { campaigns: [], next_cursor: null }));
  let tokens = 0;
  const c = s.client({ credential: () => Promise.resolve(`token-${++tokens}`) });
  await c.get("/v1/campaigns");
  await c.get("/v1/campaigns");
  assert.deepEqual(s.asked.map((asked) => asked.headers.authorization), ["Bearer token-1", "Bearer token-2"]);
});

test("a client that cannot work is refused", async () => {
  for (const baseUrl of ["ftp://example.com", "https://me:secret@example.com", "https://example.com?a=b", "https://example.com#a"]) {
    assert.throws(() => new Triprize({ baseUrl, credential: "tp_key" }), MalformedError, baseUrl);
  }
  assert.throws(() => new Triprize({ baseUrl: "example.com", credential: "tp_key" }));
  const shows = (e: unknown): boolean => e instanceof MalformedError && !e.message.includes("tp_");
  for (const credential of ["", "tp_secret\n", "tp_\nsecret", "tp_sécret", undefined as unknown as string]) {
    assert.throws(() => new Triprize({ baseUrl: "https://example.com", credential }), shows);
    let asked = 0;
    await assert.rejects(new Triprize({ baseUrl: "https://example.com", credential: () => (asked++, credential) }).get("/v1/campaigns"), shows);
    assert.equal(asked, 1); // and it is not tried again
  }
  assert.throws(() => new Triprize({ baseUrl: "https://example.com", credential: "tp_key", retry: { attempts: 0 } }), MalformedError);
});

test("a long answer is opened, and one that breaks off is an error", async (t) => {
  const s = await simulate(t, (n, response) => {
    if (n === 1) {
      refuse(response, 503, "overloaded");
    } else if (n === 2) {
      response.end("{}");
    } else {
      response.writeHead(200, { "Content-Length": "100" });
      response.write("{", () => response.destroy());
    }
  });
  const proof = { path: { campaign } };
  assert.equal(await (await s.client().open("/v1/campaigns/{campaign}/draw/proof", proof)).text(), "{}");
  const cut = await s.client().open("/v1/campaigns/{campaign}/draw/proof", proof);
  await assert.rejects(cut.text());
});

test("what another person must approve is thrown, once, and is no answer", async (t) => {
  const approval = { id: jobId, state: "pending", operation: "wallet.credit" };
  const s = await simulate(t, (_, response) => say(response, 202, approval, { Location: `/v1/approvals/${jobId}` }));
  const call = s.client().post("/v1/wallets/{wallet}/credit", { path: { wallet: campaign }, body: { amount: 1 } }).then((wallet) => wallet.balance);
  const requested = await call.catch((e: unknown) => e);
  assert.ok(requested instanceof ApprovalRequested);
  assert.equal(requested.approval.id, jobId);
  assert.equal(s.asked.length, 1);
});
