// Sends one request and reads its answer.

import { MalformedError, refusalOf, requestedOf } from "./errors.js";
import type { CallOptions } from "./operations.js";

/** How a client reaches its server. */
export interface Settings {
  /** The server, such as "https://triprize.example.com". */
  baseUrl: string;
  /** An API key (tp_…), a JSON Web Token, or what returns one, asked before each request. */
  credential: string | (() => string | Promise<string>);
  /** Bounds each attempt, 15 s by default; the wait of `waitSeconds` comes on top. */
  timeoutMs: number;
  /** Bounds the bytes of one answer, 64 MiB by default. */
  maxAnswerBytes: number;
  /** Takes the place of the global fetch: for a proxy, or certificates. */
  fetch: typeof fetch;
}

/** A request without its credential. */
export interface Sent extends CallOptions {
  method: string;
  path: string; // with its query
  body?: unknown;
  etag?: string;
  accept?: string;
  lastEventId?: string;
}

/** What came back, read to its end. */
export interface Received {
  status: number;
  headers: Headers;
  text: string;
}

/** Puts values into the path of an operation, each as one segment, and adds the query. */
export function addressOf(path: string, values: object | undefined, query: object | undefined): string {
  const given = new Map<string, unknown>(Object.entries(values ?? {}));
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = given.get(name);
    if ((typeof value !== "string" && typeof value !== "number") || value === "") {
      throw new MalformedError(`${path} needs ${name}`);
    }
    if (value === "." || value === "..") { // fetch takes %2E for a dot, too
      throw new MalformedError(`"${value}" cannot be ${name} of ${path}: no URL can have it`);
    }
    return encodeURIComponent(value);
  });
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}) as [string, unknown][]) {
    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (one !== undefined && one !== null) {
        search.append(name, String(one));
      }
    }
  }
  return search.size === 0 ? filled : `${filled}?${search.toString()}`;
}

function headersOf(request: Sent, credential: string): Headers {
  const h = new Headers({
    Authorization: `Bearer ${credential}`,
    Accept: request.accept ?? "application/json, application/problem+json",
  });
  const add = (name: string, value: string | undefined): void => {
    if (value !== undefined && value !== "") {
      h.set(name, value);
    }
  };
  add("Content-Type", request.body === undefined ? undefined : "application/json");
  add("Idempotency-Key", request.key);
  add("If-None-Match", request.etag);
  add("If-Match", request.version === undefined ? undefined : `"${request.version}"`);
  add("Last-Event-ID", request.lastEventId);
  if (request.waitSeconds !== undefined && request.waitSeconds >= 1) {
    add("Prefer", `wait=${Math.floor(request.waitSeconds)}${request.untilFinal ? "; until=final" : ""}`);
  }
  return h;
}

/** Ends when the signal of the caller does, or when the time is over that stays starts anew. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal | undefined, ms: number) {
    this.#signal = signal;
    if (signal?.aborted) {
      this.#controller.abort(signal.reason);
    }
    signal?.addEventListener("abort", this.#end);
    this.restart(ms);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  restart(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#controller.abort(new Error(`no answer within ${ms} ms`));
    }, ms);
  }

  /** Ends the timer; what is under way goes on under the signal of the caller alone. */
  stopTimer(): void {
    clearTimeout(this.#timer);
  }

  /** Lets go of the timer and of the signal of the caller. */
  close(): void {
    this.stopTimer();
    this.#signal?.removeEventListener("abort", this.#end);
  }

  readonly #end = (): void => {
    this.#controller.abort(this.#signal?.reason);
  };
}

/** Returns a credential that can be sent. No error shows it, as that of fetch would. */
export function checkedCredential(credential: unknown): string {
  if (typeof credential !== "string" || !/^[!-~]+$/.test(credential)) {
    throw new MalformedError("the credential must be an API key or a JSON Web Token");
  }
  return credential;
}

/** Sends a request; of the answer only the head is read. */
export async function open(settings: Settings, request: Sent, signal: AbortSignal): Promise<Response> {
  const { credential } = settings;
  const headers = headersOf(request, checkedCredential(typeof credential === "function" ? await credential() : credential));
  return settings.fetch(settings.baseUrl + request.path, {
    method: request.method,
    headers,
    body: request.body === undefined ? null : JSON.stringify(request.body),
    redirect: "manual", // it may turn a POST into a GET, and would get the credential
    credentials: "omit",
    cache: "no-store", // a tag is sent and judged here
    signal,
  });
}

/** Sends a request once and reads the whole answer. A refusal is an error; 304 is not. */
export async function attempt(settings: Settings, request: Sent): Promise<Received> {
  const deadline = new Deadline(request.signal, settings.timeoutMs + (request.waitSeconds ?? 0) * 1000);
  try {
    const response = await open(settings, request, deadline.signal);
    const text = await read(response, settings.maxAnswerBytes);
    if (!response.ok && !(response.status === 304 && request.etag !== undefined)) {
      throw refusalOf(response, text);
    }
    if (response.status === 202 && response.headers.get("Location")?.startsWith("/v1/approvals/")) {
      throw requestedOf(text);
    }
    return { status: response.status, headers: response.headers, text };
  } finally {
    deadline.close();
  }
}

/** Reads a body to its end, so that the connection can be used again, within a bound. */
export async function read(response: Response, maxBytes: number): Promise<string> {
  if (response.body === null) {
    return "";
  }
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let text = "";
  for (let bytes = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) {
      return text + decoder.decode();
    }
    bytes += value.byteLength;
    if (bytes > maxBytes) {
      await reader.cancel();
      throw new MalformedError(`the answer is over ${maxBytes} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}
