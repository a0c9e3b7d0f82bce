// What a job says.

import type { CancellationResult, JobDocument, JobKind, JobResults, Problem, PurchaseResult } from "./api.gen.js";
import { MalformedError, NotFinalError, TriprizeError } from "./errors.js";

type Outcome<Result> =
  | { state: "queued" | "awaiting_action"; result: null; problem: null }
  | { state: "succeeded"; result: Result; problem: null }
  | { state: "failed"; result: null; problem: Problem };

/** An accepted request and its result. Its `kind` and `state` say what `result` and `problem` are. */
export type Job<Kind extends JobKind = JobKind> = {
  [K in Kind]: Omit<JobDocument, "kind" | "state" | "result" | "problem"> & { kind: K } & Outcome<JobResults[K]>;
}[Kind];

/** The job has succeeded or failed; it does not change any more. */
export function isFinal<J extends Job>(job: J): job is J & { state: "succeeded" | "failed" } {
  return job.state === "succeeded" || job.state === "failed";
}

/** The buyer has something to do: what `next_action` says. */
export function awaitsAction(job: Job): boolean {
  return job.state === "awaiting_action";
}

/** Checks that a document is a job. */
export function jobOf(document: unknown): Job {
  if (typeof document !== "object" || document === null || !("id" in document) || !("state" in document)) {
    throw new MalformedError("the answer is not a job");
  }
  return document as Job;
}

/** Checks that a job is of a kind. */
export function jobOfKind<K extends JobKind>(job: Job, kind: K): Job<K> {
  if (job.kind !== kind) {
    throw new MalformedError(`job ${job.id} is not a ${kind}`);
  }
  return job as Job as Job<K>;
}

/** The result of a purchase job. Of one that has failed it throws a TriprizeError; of one that is not final, a NotFinalError. */
export function purchased(job: Job): PurchaseResult {
  return resultOf(job, "purchase");
}

/** The result of a cancellation job; it throws as `purchased` does. */
export function cancelled(job: Job): CancellationResult {
  return resultOf(job, "cancellation");
}

function resultOf<K extends "purchase" | "cancellation">(job: Job, kind: K): JobResults[K] {
  if (job.state === "failed") {
    const problem: Problem | null = job.problem;
    throw new TriprizeError(problem?.status ?? 500, problem ?? undefined, { detail: "the job failed and does not say why" });
  }
  if (!isFinal(job)) {
    throw new NotFinalError(`job ${job.id} is not final yet`);
  }
  const result: JobResults[K] | null = jobOfKind(job, kind).result;
  if (typeof result !== "object" || result === null || !("positions" in result)) {
    throw new MalformedError(`job ${job.id} has not the result of a ${kind}`);
  }
  return result;
}
