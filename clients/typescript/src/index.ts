/**
 * Calls Triprize from TypeScript and JavaScript, in Node.js and in browsers.
 *
 * @packageDocumentation
 */

export type * from "./api.gen.js";
export { Triprize, type Options, type Tagged } from "./client.js";
export { ApprovalRequested, MalformedError, NotFinalError, TriprizeError, UnreachableError } from "./errors.js";
export { awaitsAction, cancelled, isFinal, purchased, type Job } from "./jobs.js";
export type { Answer, CallOptions, Item, ListPath, Method, PathsWith } from "./operations.js";
export type { RetryPolicy } from "./retry.js";
export { verifyWebhook, WebhookVerificationError, type VerifyOptions, type WebhookEvent, type WebhookHeaders } from "./webhooks.js";
