// When a request is sent again.

import { ApprovalRequested, MalformedError, TriprizeError } from "./errors.js";

/** Bounds how often a request is sent. */
export interface RetryPolicy {
  /** At most, including the first; 1: no retries. 8 by default. */
  attempts: number;
  /** No attempt begins later than this after the first one. 2 minutes by default. */
  elapsedMs: number;
  /** About how long to wait before the second attempt; then longer and longer. 200 ms by default. */
  firstMs: number;
  /** The longest wait before an attempt, unless Retry-After is longer. 10 s by default. */
  longestMs: number;
}

export const defaultRetry: RetryPolicy = { attempts: 8, elapsedMs: 120_000, firstMs: 200, longestMs: 10_000 };

const transient = new Set([408, 429, 500, 502, 503, 504]);

/** A request that never left, by the error of Node.js: so it may be sent again even without a key. */
const unsent = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]);

/** Tells whether a request that failed may be sent again. Repeatable are reads, DELETEs, and POSTs with their keys. */
export function mayRepeat(failure: unknown, repeatable: boolean): boolean {
  if (failure instanceof MalformedError || failure instanceof ApprovalRequested) {
    return false;
  }
  if (failure instanceof TriprizeError) {
    return repeatable && transient.has(failure.status);
  }
  return repeatable || unsent.has(codeOf(failure));
}

function codeOf(failure: unknown): string {
  const cause = failure instanceof Error ? (failure.cause ?? failure) : failure;
  return typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : "";
}

/**
 * How long to wait before the next attempt; attempt counts from 1. About twice as long each time, with jitter; if the
 * server says how long, that and up to a quarter more: many clients get the same time, and must not all come at once.
 */
export function pauseBefore(attempt: number, failure: unknown, policy: RetryPolicy): number {
  if (failure instanceof TriprizeError && failure.retryAfterMs > 0) {
    return failure.retryAfterMs * (1 + Math.random() / 4);
  }
  return Math.min(policy.firstMs * 2 ** (attempt - 1), policy.longestMs) * (0.5 + Math.random());
}

/** Does something until it succeeds, may not be repeated, or the policy ends it with the last failure. */
export async function retried<T>(policy: RetryPolicy, repeatable: boolean, signal: AbortSignal | undefined, once: () => Promise<T>): Promise<T> {
  const begin = Date.now();
  for (let attempt = 1; ; attempt++) {
    signal?.throwIfAborted();
    try {
      return await once();
    } catch (failure) {
      signal?.throwIfAborted();
      if (attempt >= policy.attempts || !mayRepeat(failure, repeatable)) {
        throw failure;
      }
      const pause = pauseBefore(attempt, failure, policy);
      if (Date.now() - begin + pause > policy.elapsedMs) {
        throw failure;
      }
      await sleep(pause, signal);
    }
  }
}

/** Waits; throws the reason of the signal when that ends first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as unknown);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
