// What the generated types say of an operation: its parameters, its body, its answer.

import type { Approval, paths } from "./api.gen.js";

/** The methods of the contract. */
export type Method = "get" | "post" | "put" | "patch" | "delete";

/** The paths that have a method. */
export type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [m in M]: { responses: unknown } } ? P : never;
}[keyof paths];

/** An operation of the contract. */
export type Operation<M extends Method, P extends PathsWith<M>> = paths[P][M & keyof paths[P]];

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : undefined;

/** The document that a successful call returns; undefined when there is none. A request for an approval is thrown: see ApprovalRequested. */
export type Answer<O> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 201 | 204 ? Json<R[S]> : S extends 202 ? Exclude<Json<R[S]>, Approval> : never }[keyof R]
  : never;

type PathParameters<O> = O extends { parameters: { path: infer V extends object } } ? { path: V } : { path?: undefined };

type QueryParameters<O> = O extends { parameters: { query?: infer Q } }
  ? [NonNullable<Q>] extends [never]
    ? { query?: undefined }
    : { query?: NonNullable<Q> }
  : { query?: undefined };

type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? { body: B }
  : O extends { requestBody?: { content: { "application/json": infer B } } }
    ? { body?: B }
    : { body?: undefined };

/** What belongs to one call: the parameters of the operation and how it is to be made. */
export type Arguments<O> = PathParameters<O> & QueryParameters<O> & Body<O> & CallOptions;

/** Left out where nothing in it is required. */
export type Optional<T> = Record<never, never> extends T ? [options?: T] : [options: T];

/** How a call is made. */
export interface CallOptions {
  /** Ends the call, its waits and its retries. */
  signal?: AbortSignal;
  /**
   * The Idempotency-Key of a POST, 1 to 255 printable ASCII characters; a fresh one if it is left out. With the key
   * of an earlier call it repeats that call and gets the same answer. A program that may crash and try again chooses
   * its own keys, such as the id of an order.
   */
  key?: string;
  /** For calls that answer with a job: the server answers when it is final, or after so many seconds. */
  waitSeconds?: number;
  /** With waitSeconds: an action that is awaited from the buyer is no reason to answer. */
  untilFinal?: boolean;
  /** For commands on wallets: refused with `version-mismatch` when the wallet has another version by now. */
  version?: number;
}

/** The lists: what answers page after page. */
export type ListPath = {
  [P in PathsWith<"get">]: Answer<Operation<"get", P>> extends { next_cursor: unknown } ? P : never;
}[PathsWith<"get">];

/** What a list is a list of: the one member of its pages that is an array. */
export type Item<P extends ListPath> = ItemOfPage<Answer<Operation<"get", P>>>;

type ItemOfPage<Page> = { [K in keyof Page]: Page[K] extends readonly (infer T)[] ? T : never }[keyof Page];
