// What a job says.

import type { Currency, Job, PurchaseItem } from "./api.gen.js";
import { MalformedError, NotFinalError, TriprizeError } from "./errors.js";

/** The result of a purchase. */
export interface Purchased {
  purchase_id: string;
  positions: PurchaseItem[];
  /** In minor units. */
  amount: number;
  currency: Currency;
}

/** The job has succeeded or failed; it does not change any more. */
export function isFinal(job: Job): boolean {
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

/** The result of a purchase job. Of one that has failed it throws a TriprizeError; of one that is not final, a NotFinalError. */
export function purchased(job: Job): Purchased {
  if (job.state === "failed") {
    const problem = job.problem ?? undefined;
    throw new TriprizeError(problem?.status ?? 500, problem, { detail: "the job failed and does not say why" });
  }
  if (!isFinal(job)) {
    throw new NotFinalError(`job ${job.id} is not final yet`);
  }
  const result: unknown = job.result;
  if (job.kind !== "purchase" || typeof result !== "object" || result === null || !("positions" in result)) {
    throw new MalformedError(`job ${job.id} is not a purchase`);
  }
  return result as Purchased;
}
