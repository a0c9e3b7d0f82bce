// The client: every operation of the contract, typed, with its retries.

import type { Board, Campaign, CampaignEvent, CancellationRequest, Draw, Hold, HoldExtension, HoldRequest, PaymentDraft, PaymentTry, PurchaseRequest } from "./api.gen.js";
import { ApprovalRequested, MalformedError, refusalOf, retryAfterOf, TriprizeError, UnreachableError } from "./errors.js";
import { follow } from "./follow.js";
import { awaitsAction, isFinal, jobOf, jobOfKind, type Job } from "./jobs.js";
import type { Answer, Arguments, CallOptions, Item, ListPath, Method, Operation, Optional, PathsWith } from "./operations.js";
import { defaultRetry, retried, sleep, type RetryPolicy } from "./retry.js";
import { addressOf, attempt, checkedCredential, Deadline, open, read, type Received, type Sent, type Settings } from "./transport.js";

/** What a client is made of. */
export interface Options extends Partial<Omit<Settings, "baseUrl" | "credential">>, Pick<Settings, "baseUrl" | "credential"> {
  /** Bounds the retries; what is left out keeps its default. */
  retry?: Partial<RetryPolicy>;
}

/** A document and the tag of its version. */
export interface Tagged<T> {
  /** Undefined when the server has no tag for it. */
  etag: string | undefined;
  value: T;
}

type Parts = CallOptions & { path?: object | undefined; query?: object | undefined; body?: unknown };

const longestWaitSeconds = 30; // what servers allow by default
const shortestWaitMs = 1000; // between two requests for a job, if the server does not say

/** Calls one server with one credential. */
export class Triprize {
  readonly #settings: Settings;
  readonly #retry: RetryPolicy;

  constructor(options: Options) {
    const base = new URL(options.baseUrl);
    if (!/^https?:$/.test(base.protocol) || base.username !== "" || base.search !== "" || base.hash !== "") {
      throw new MalformedError("the base URL must be like https://triprize.example.com");
    }
    if (typeof options.credential !== "function") {
      checkedCredential(options.credential);
    }
    this.#settings = {
      baseUrl: base.href.replace(/\/+$/, ""),
      credential: options.credential,
      timeoutMs: options.timeoutMs ?? 15_000,
      maxAnswerBytes: options.maxAnswerBytes ?? 64 << 20,
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    };
    this.#retry = { ...defaultRetry, ...options.retry };
    const { attempts, elapsedMs, firstMs, longestMs } = this.#retry;
    if (!(attempts >= 1 && elapsedMs >= 0 && firstMs >= 0 && longestMs >= firstMs && this.#settings.timeoutMs > 0)) {
      throw new MalformedError("impossible bounds of retries, or of time");
    }
  }

  /** Reads. */
  get<P extends PathsWith<"get">>(path: P, ...[options]: Optional<Arguments<Operation<"get", P>>>): Promise<Answer<Operation<"get", P>>> {
    return this.#call("get", path, options);
  }

  /** Asks for something to be done, once: see `key`. */
  post<P extends PathsWith<"post">>(path: P, ...[options]: Optional<Arguments<Operation<"post", P>>>): Promise<Answer<Operation<"post", P>>> {
    return this.#call("post", path, options);
  }

  put<P extends PathsWith<"put">>(path: P, ...[options]: Optional<Arguments<Operation<"put", P>>>): Promise<Answer<Operation<"put", P>>> {
    return this.#call("put", path, options);
  }

  /** Changes something. It has no key, so it is sent again only if it never left. */
  patch<P extends PathsWith<"patch">>(path: P, ...[options]: Optional<Arguments<Operation<"patch", P>>>): Promise<Answer<Operation<"patch", P>>> {
    return this.#call("patch", path, options);
  }

  /** Removes something. It is sent again as a `get` is; after a lost answer a 404 may mean that it was done. */
  delete<P extends PathsWith<"delete">>(path: P, ...[options]: Optional<Arguments<Operation<"delete", P>>>): Promise<Answer<Operation<"delete", P>>> {
    return this.#call("delete", path, options);
  }

  /**
   * Reads what has an ETag (campaigns, their list, boards, proofs), if it has changed: with the etag of an earlier
   * answer, undefined means that this answer is still right.
   */
  async getIfChanged<P extends PathsWith<"get">>(
    path: P,
    etag: string | undefined,
    ...[options]: Optional<Arguments<Operation<"get", P>>>
  ): Promise<Tagged<Answer<Operation<"get", P>>> | undefined> {
    const received = await this.#received("get", path, options, etag);
    if (received.status === 304) {
      return undefined;
    }
    return { etag: received.headers.get("ETag") ?? undefined, value: documentOf(received) as Answer<Operation<"get", P>> };
  }

  /** Iterates over a list, and reads the next page when it needs it. */
  async *list<P extends ListPath>(path: P, ...[options]: Optional<Arguments<Operation<"get", P>>>): AsyncGenerator<Item<P>, void, undefined> {
    const parts: Parts = options ?? {};
    for (let query = parts.query; ; ) {
      const page = documentOf(await this.#received("get", path, { ...parts, query }));
      const items: unknown = typeof page === "object" && page !== null ? Object.values(page).find((value) => Array.isArray(value)) : undefined;
      if (!Array.isArray(items) || typeof page !== "object" || page === null || !("next_cursor" in page)) {
        throw new MalformedError(`${path} is not a list`);
      }
      yield* items as Item<P>[];
      const cursor: unknown = page.next_cursor;
      if (cursor === null) {
        return;
      }
      if (query !== undefined && "cursor" in query && query.cursor === cursor) {
        throw new MalformedError(`${path}: the next page is the same page`);
      }
      query = { ...query, cursor };
    }
  }

  /**
   * Opens an answer that is long or not JSON: the proof of a draw, the frozen list, an export (accept: "text/csv" or "application/x-ndjson"). Read its body to the
   * end; a read that fails means that it is not complete. The bound of time is for its head only.
   */
  async open<P extends PathsWith<"get">>(path: P, ...[options]: Optional<Arguments<Operation<"get", P>> & { accept?: string }>): Promise<Response> {
    const parts = (options as (Parts & { accept?: string }) | undefined) ?? {};
    const sent: Sent = { method: "GET", path: addressOf(path, parts.path, parts.query), accept: parts.accept ?? "*/*" };
    return this.#repeated(sent, parts.signal, async () => {
      const deadline = new Deadline(parts.signal, this.#settings.timeoutMs);
      try {
        const response = await open(this.#settings, sent, deadline.signal);
        if (response.ok) {
          return response;
        }
        throw refusalOf(response, await read(response, this.#settings.maxAnswerBytes));
      } finally {
        deadline.stopTimer(); // the signal of the caller still ends the body
      }
    });
  }

  /**
   * Requests a purchase and waits until its job is final, or awaits an action of the buyer: by `next_action.type` send
   * the buyer to `next_action.url`, and `followJob` or `wait`; or bring another card, see `pay`. A failed job is no error of `buy`: see `purchased`. When the campaign never
   * sells again there may be no job, and `buy` throws what `purchased` would.
   */
  async buy(campaign: string, body: PurchaseRequest, options: CallOptions = {}): Promise<Job<"purchase">> {
    const parts = { waitSeconds: longestWaitSeconds, ...options, path: { campaign }, body };
    return this.#untilBuyer(jobOf(documentOf(await this.#received("post", "/v1/campaigns/{campaign}/purchases", parts))), options.signal);
  }

  /**
   * Brings another payment method for a purchase by card that awaits its buyer, after a decline or instead of an
   * authentication, and waits as `buy` does: until the job of the purchase is final, or awaits the buyer again.
   */
  async pay(purchase: string, body: PaymentTry, options: CallOptions = {}): Promise<Job<"purchase">> {
    const job = await this.post("/v1/purchases/{purchase}/payment", { waitSeconds: longestWaitSeconds, ...options, path: { purchase }, body });
    return this.#untilBuyer(job, options.signal);
  }

  /** Keeps positions for a user until `expires_at`, all or nothing. */
  hold(campaign: string, body: HoldRequest, options: CallOptions = {}): Promise<Hold> {
    return this.post("/v1/campaigns/{campaign}/holds", { ...options, path: { campaign }, body });
  }

  /** Adds time to a hold. */
  extendHold(hold: string, body: HoldExtension = {}, options: CallOptions = {}): Promise<Hold> {
    return this.post("/v1/holds/{hold}/extend", { ...options, path: { hold }, body });
  }

  /** Frees the positions of a hold. */
  releaseHold(hold: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.delete("/v1/holds/{hold}", { ...options, path: { hold } });
  }

  /** As `buy`: the positions of a hold, for its user. */
  buyHold(hold: Hold, payment: PaymentDraft, options: CallOptions = {}): Promise<Job<"purchase">> {
    return this.buy(hold.campaign_id, { user_id: hold.user_id, selection: { hold_id: hold.id }, payment }, options);
  }

  /** Cancels a purchase, and waits until that has succeeded or failed: see `cancelled`. */
  async cancel(purchase: string, body: CancellationRequest = {}, options: CallOptions = {}): Promise<Job<"cancellation">> {
    const job = await this.post("/v1/purchases/{purchase}/cancel", { waitSeconds: longestWaitSeconds, ...options, path: { purchase }, body });
    return jobOfKind(isFinal(job) ? job : await this.wait(job.id, options), "cancellation");
  }

  /** Waits until a job is final, also while it awaits an action of the buyer: `followJob` tells at once of a declined card. */
  wait(job: string, options: { signal?: AbortSignal } = {}): Promise<Job> {
    return this.#wait(job, true, options.signal);
  }

  /** Yields a job as it is now, and after each change; the last time when it is final. */
  async *followJob(job: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<Job, void, undefined> {
    for await (const data of this.#follow("/v1/jobs/{job}/events", "job", { job }, undefined, options.signal)) {
      const now = jobOf(data);
      yield now;
      if (isFinal(now)) {
        return;
      }
    }
  }

  /**
   * Yields the state and the counts of a campaign as they are now, and after each change. A slow reader may miss some
   * changes, but not the newest state. It ends when the campaign is completed, or cancelled and given back.
   */
  async *followCampaign(campaign: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<CampaignEvent, void, undefined> {
    yield* this.#followCampaign(campaign, undefined, options.signal);
  }

  /** As followCampaign, with the board in every event: the whole board first, then what has changed since the event before. */
  async *followBoard(campaign: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<CampaignEvent & { board: Board }, void, undefined> {
    let seen = 0;
    for await (const event of this.#followCampaign(campaign, { positions: true }, options.signal)) {
      let board = event.board;
      if (board === null || board === undefined || (board.since ?? 0) > seen) { // too much for an event, or something is missing
        const query = { min_version: event.board_version, ...(seen > 0 ? { since: seen } : {}) };
        board = await this.get("/v1/campaigns/{campaign}/positions", { path: { campaign }, query, ...signalled(options.signal) });
      }
      seen = board.board_version;
      yield { ...event, board };
    }
  }

  /**
   * Yields what is public of a draw as it is now, and after each change. The freeze record comes as soon as it is stored:
   * note its hash before `round_due_at`. It ends when the campaign is completed or cancelled.
   */
  async *followDraw(campaign: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<Draw, void, undefined> {
    for await (const data of this.#follow("/v1/campaigns/{campaign}/draw/events", "draw", { campaign }, undefined, options.signal)) {
      const draw = data as Draw;
      yield draw;
      if (draw.state === completed || draw.state === cancelled) {
        return;
      }
    }
  }

  async *#followCampaign(campaign: string, query: object | undefined, signal: AbortSignal | undefined): AsyncGenerator<CampaignEvent, void, undefined> {
    for await (const data of this.#follow("/v1/campaigns/{campaign}/events", "campaign", { campaign }, query, signal)) {
      const event = data as CampaignEvent;
      yield event;
      if (event.state === completed) {
        return;
      }
    }
  }

  #follow(path: PathsWith<"get">, name: string, values: object, query: object | undefined, signal: AbortSignal | undefined): AsyncGenerator<unknown, void, undefined> {
    return follow(this.#settings, this.#retry, { path: addressOf(path, values, query), name, signal });
  }

  /** Goes on from the answer to a purchase until its job is final, or awaits the buyer. */
  async #untilBuyer(job: Job, signal: AbortSignal | undefined): Promise<Job<"purchase">> {
    return jobOfKind(isFinal(job) || awaitsAction(job) ? job : await this.#wait(job.id, false, signal), "purchase");
  }

  /** Asks for the job again and again; the server waits before each answer, as long as it allows. */
  async #wait(job: string, untilFinal: boolean, signal: AbortSignal | undefined): Promise<Job> {
    for (;;) {
      const asked = Date.now();
      const received = await this.#received("get", "/v1/jobs/{job}", { path: { job }, waitSeconds: longestWaitSeconds, untilFinal, ...signalled(signal) });
      const now = jobOf(documentOf(received));
      if (now.id !== job) {
        throw new MalformedError(`another job than ${job}`);
      }
      if (isFinal(now) || (awaitsAction(now) && !untilFinal)) {
        return now;
      }
      await sleep(Math.max(retryAfterOf(received.headers), shortestWaitMs) - (Date.now() - asked), signal);
    }
  }

  async #call<M extends Method, P extends PathsWith<M>>(method: M, path: P, parts: Parts | undefined): Promise<Answer<Operation<M, P>>> {
    return documentOf(await this.#received(method, path, parts)) as Answer<Operation<M, P>>;
  }

  #received(method: Method, path: string, parts: Parts = {}, etag?: string): Promise<Received> {
    const { path: values, query, key, ...rest } = parts;
    const sent: Sent = { ...rest, method: method.toUpperCase(), path: addressOf(path, values, query) };
    if (etag !== undefined) {
      sent.etag = etag;
    }
    if (method === "post") {
      sent.key = key ?? freshKey();
      if (!/^[ -~]{1,255}$/.test(sent.key)) {
        throw new MalformedError("an Idempotency-Key must have 1 to 255 printable ASCII characters");
      }
    }
    return this.#repeated(sent, parts.signal, () => attempt(this.#settings, sent));
  }

  async #repeated<T>(sent: Sent, signal: AbortSignal | undefined, once: () => Promise<T>): Promise<T> {
    try {
      return await retried(this.#retry, sent.key !== undefined || sent.method === "GET" || sent.method === "DELETE", signal, once);
    } catch (failure) {
      signal?.throwIfAborted();
      if (failure instanceof TriprizeError || failure instanceof ApprovalRequested || failure instanceof MalformedError) {
        throw failure;
      }
      throw new UnreachableError(sent.method, sent.path, sent.key, failure);
    }
  }
}

const completed: Campaign["state"] = "completed";
const cancelled: Campaign["state"] = "cancelled";

function signalled(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

/** A key with 128 random bits. (randomUUID is not there on pages without https.) */
function freshKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function documentOf(received: Received): unknown {
  if (received.text === "") {
    return undefined;
  }
  try {
    return JSON.parse(received.text) as unknown;
  } catch (cause) {
    throw new MalformedError("the answer is not JSON", { cause });
  }
}
