// What can go wrong with a call.

import type { Approval, Problem } from "./api.gen.js";

/**
 * A refusal: of a request, or of a job that has failed. Act on its `code`.
 *
 * The code is empty when the answer is not from Triprize but, for example, from a proxy in front of it.
 */
export class TriprizeError extends Error {
  override readonly name = "TriprizeError";
  /** The HTTP status. */
  readonly status: number;
  /** What happened, such as `sold-out`; see /problems of a server. */
  readonly code: Problem["code"] | "";
  /** The whole problem document, if there is one. */
  readonly problem: Problem | undefined;
  /** How long to wait before the next attempt, by the server, in milliseconds; 0 when it does not say. */
  readonly retryAfterMs: number;
  /** Under this id the operator finds the request in the log. */
  readonly requestId: string;

  constructor(status: number, problem: Problem | undefined, options: { detail?: string; retryAfterMs?: number; requestId?: string } = {}) {
    const requestId = problem?.request_id ?? options.requestId ?? "";
    const said = [String(status), problem?.code ?? "", problem?.detail ?? options.detail ?? ""].filter((part) => part !== "");
    super(said.join(" ") + (requestId === "" ? "" : ` (request ${requestId})`));
    this.status = status;
    this.code = problem?.code ?? "";
    this.problem = problem;
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.requestId = requestId;
  }
}

/**
 * There was no answer, or only a part of one. For a POST it is not known whether it was done: send it again with the
 * same key, which is here.
 */
export class UnreachableError extends Error {
  override readonly name = "UnreachableError";

  constructor(
    readonly method: string,
    readonly path: string,
    readonly key: string | undefined,
    cause: unknown,
  ) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`${method} ${path}${key === undefined ? "" : ` (Idempotency-Key ${key})`}: ${why}`, { cause });
  }
}

/** An answer that does not fit the contract, or a request that cannot be sent. It is not sent again. */
export class MalformedError extends Error {
  override readonly name = "MalformedError";
}

/**
 * Nothing was done yet: another person must approve what an operator has asked for. A call with the same key, or
 * `get("/v1/approvals/{approval}")`, tells what became of it. Calls of apps never have it.
 */
export class ApprovalRequested extends Error {
  override readonly name = "ApprovalRequested";

  constructor(readonly approval: Approval) {
    super(`${approval.operation} needs another person's approval: request ${approval.id} is ${approval.state}`);
  }
}

/** Makes an error of an answer that is a request for an approval. */
export function requestedOf(body: string): ApprovalRequested | MalformedError {
  try {
    return new ApprovalRequested(JSON.parse(body) as Approval);
  } catch (cause) {
    return new MalformedError("the answer is no request for an approval", { cause });
  }
}

/** A job has no result yet. */
export class NotFinalError extends Error {
  override readonly name = "NotFinalError";
}

const maxRetryAfterMs = 24 * 3600 * 1000;

/** Reads Retry-After: seconds, or a date. At most a day, so that a wrong header harms nobody. */
export function retryAfterOf(headers: Headers): number {
  const text = headers.get("Retry-After") ?? "";
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), maxRetryAfterMs);
}

/** Makes an error of an answer that is not a success. */
export function refusalOf(response: Response, body: string): TriprizeError {
  const options = { retryAfterMs: retryAfterOf(response.headers), requestId: response.headers.get("X-Request-ID") ?? "" };
  const problem = problemIn(body);
  if (problem !== undefined) {
    return new TriprizeError(response.status, problem, options);
  }
  const elsewhere = response.headers.get("Location"); // not followed: the base URL must be wrong
  const detail = response.type === "opaqueredirect" ? "a redirect" : response.statusText.toLowerCase();
  return new TriprizeError(response.status, undefined, { ...options, detail: elsewhere === null ? detail : `${detail}, to ${elsewhere}` });
}

function problemIn(body: string): Problem | undefined {
  try {
    const value: unknown = JSON.parse(body);
    if (typeof value === "object" && value !== null && "code" in value && typeof value.code === "string" && value.code !== "") {
      return value as Problem;
    }
  } catch {
    // not a problem document: a proxy has answered
  }
  return undefined;
}
