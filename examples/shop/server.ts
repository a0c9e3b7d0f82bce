// A shop for a hall of 8 rows with 10 seats: holds, cards with 3-D Secure, refunds, webhooks, a live map.
// It trusts a cookie with a random user: a real shop has a login, and a database for the events in `handled`.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { isFinal, purchased, Triprize, TriprizeError, UnreachableError, type Job, type PaymentDraft, type Position } from "@triprize/client";
import { verifyWebhook, WebhookVerificationError } from "@triprize/client/webhooks";

const { API = "http://127.0.0.1:8080", APP = "", OPERATOR = "", PORT = "3000", CAMPAIGN } = process.env;
const self = `http://127.0.0.1:${PORT}`;
const triprize = new Triprize({ baseUrl: API, credential: APP });
const page = readFileSync(new URL("page.html", import.meta.url));

// Operators make campaigns. A shop needs their key for that only.
async function openHall(): Promise<string> {
  const operator = new Triprize({ baseUrl: API, credential: OPERATOR });
  const layers = [..."ABCDEFGH"].map((row, i) => ({
    layer: i + 1, positions: 10, label: `Row ${row}`, price: 9000 - 1000 * i, prizes: i === 0 ? [{ name: "A walk on the stage", count: 1 }] : [],
  }));
  const { id } = await operator.post("/v1/campaigns", { body: { name: "The hall", currency: "JPY", purchase_limit: 4, layers } });
  await operator.post("/v1/campaigns/{campaign}/publish", { path: { campaign: id } });
  return id;
}

// Webhooks: verified, answered at once, and each event handled once.
const handled = new Set<string>();
let secret = "";

async function listen(): Promise<void> {
  const url = `${self}/webhooks`;
  for await (const old of triprize.list("/v1/webhook-endpoints")) {
    if (old.url === url) await triprize.delete("/v1/webhook-endpoints/{endpoint}", { path: { endpoint: old.id } });
  }
  const made = await triprize.post("/v1/webhook-endpoints", { body: { url, events: ["purchase.*", "campaign.*"] } });
  secret = made.secret ?? "";
}

async function webhook(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const event = await verifyWebhook(await bodyOf(request), request.headers, secret);
  if (event.type === "webhook-endpoint.verification") {
    response.writeHead(200, { "Content-Type": "text/plain" }).end(event.data.challenge);
    return;
  }
  if (!handled.has(event.id)) {
    handled.add(event.id);
    console.log(JSON.stringify({ event: event.id, type: event.type, subject: "id" in event.data ? event.data.id : "" }));
  }
  response.writeHead(204).end();
}

// The map: one stream from the server for all visitors.
const seats = new Map<string, Position>();
const visitors = new Set<ServerResponse>();

async function follow(campaign: string): Promise<void> {
  for (;;) {
    try {
      for await (const { board, state } of triprize.followBoard(campaign)) {
        for (const seat of board.positions) seats.set(`${seat.layer}/${seat.column}`, seat);
        tell(board.positions, state);
      }
      return; // the hall is sold and drawn
    } catch (e) {
      console.error(e);
      await new Promise((again) => setTimeout(again, 1000));
    }
  }
}

function tell(changed: Position[], state: string, to: Iterable<ServerResponse> = visitors): void {
  for (const visitor of to) visitor.write(`data: ${JSON.stringify({ state, seats: changed })}\n\n`);
}

function watch(response: ServerResponse): void {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  tell([...seats.values()], "", [response]);
  visitors.add(response);
  response.on("close", () => visitors.delete(response));
}

// The requests of the page. It makes the keys: a request that is sent again is done once.
interface Asked { key: string; seats?: { layer: number; column: number }[]; hold?: string; purchase?: string; card?: string }

const actions: Record<string, (user: string, asked: Asked) => Promise<unknown>> = {
  hold: (user, { key, seats: positions }) => triprize.hold(campaign, { user_id: user, positions: positions ?? [], ttl_seconds: 600 }, { key }),
  async release(user, { hold }) {
    await triprize.releaseHold((await holdOf(user, hold)).id);
    return {};
  },
  async pay(user, { key, hold, purchase, card = "" }) {
    if (purchase === undefined) return outcome(await triprize.buyHold(await holdOf(user, hold), payment(card), { key }));
    return outcome(await triprize.pay((await purchaseOf(user, purchase)).id, { payment_method: card }, { key })); // another card
  },
  async outcome(user, { purchase }) { // after an authentication, which may end in a decline
    const { job_id } = await purchaseOf(user, purchase);
    for await (const job of triprize.followJob(job_id)) {
      if (isFinal(job) || job.next_action?.type === "payment_method") return outcome(job as Job<"purchase">);
    }
  },
  async cancel(user, { key, purchase }) {
    const { state, problem } = await triprize.cancel((await purchaseOf(user, purchase)).id, { reason: "the buyer asked for it" }, { key });
    return { state, reason: problem?.detail };
  },
  async mine(user) {
    const { purchases } = await triprize.get("/v1/users/{user}/purchases", { path: { user }, query: { campaign_id: campaign, limit: 20 } });
    return purchases;
  },
};

// Resources of other users do not exist for this one.
async function holdOf(user: string, hold = "") {
  const found = await triprize.get("/v1/holds/{hold}", { path: { hold } });
  if (found.user_id !== user) throw new TriprizeError(404, undefined, { detail: "no such hold" });
  return found;
}

async function purchaseOf(user: string, purchase = "") {
  const found = await triprize.get("/v1/purchases/{purchase}", { path: { purchase } });
  if (found.user_id !== user) throw new TriprizeError(404, undefined, { detail: "no such purchase" });
  return found;
}

function payment(card: string): PaymentDraft {
  return { method: "card", payment_method: card, return_url: `${self}/` };
}

function outcome(job: Job<"purchase">): object {
  if (job.state === "succeeded") return { state: "paid", purchase: job.purchase_id, seats: purchased(job).positions.map((seat) => seat.label) };
  if (job.state === "failed") {
    const { code, detail, about } = job.problem; // the hold may keep the seats again
    return { state: "failed", purchase: job.purchase_id, code, reason: detail, hold: about?.kind === "hold" ? about.id : undefined };
  }
  return { state: "action", purchase: job.purchase_id, action: job.next_action };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) if (parts.push(part) > 1000) throw new TriprizeError(413, undefined);
  return Buffer.concat(parts).toString();
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const user = /(?:^|; )user=([\w-]{1,64})/.exec(request.headers.cookie ?? "")?.[1];
  const path = new URL(request.url ?? "/", self).pathname;
  const action = actions[path.slice(1)];
  if (request.method === "POST" && path === "/webhooks") return webhook(request, response);
  if (request.method === "GET" && path === "/map") return watch(response);
  if (request.method === "GET" && path === "/") {
    const cookie = user === undefined ? { "Set-Cookie": `user=${randomUUID()}; HttpOnly; SameSite=Lax; Path=/` } : {};
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", ...cookie }).end(page);
  } else if (request.method === "POST" && action !== undefined && user !== undefined) {
    const asked = JSON.parse(await bodyOf(request)) as Asked;
    const told = await action(user, { ...asked, key: `${user}-${asked.key}` });
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(told));
  } else {
    response.writeHead(404).end();
  }
}

// A refusal is passed on with its reason. Of anything else it is not known whether it was done: ask again.
function refuse(response: ServerResponse, e: unknown): void {
  const status = e instanceof TriprizeError ? e.status : e instanceof WebhookVerificationError ? 401 : e instanceof UnreachableError ? 503 : 400;
  const problem = e instanceof TriprizeError ? e.problem : undefined;
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(problem ?? { detail: String(e) }));
}

const campaign = CAMPAIGN ?? (await openHall());
void follow(campaign);
createServer((request, response) => {
  answer(request, response).catch((e: unknown) => refuse(response, e));
}).listen(Number(PORT), "127.0.0.1", () => {
  listen().then(() => console.log(`campaign ${campaign}\nThe shop is open: ${self}/`), (e: unknown) => {
    console.error(e);
    process.exit(1);
  });
});
