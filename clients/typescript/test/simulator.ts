// A server that answers as a test says, and keeps what it was asked.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

import { Triprize, type Options } from "../src/index.js";

export const campaign = "01999f4e-0000-7d20-9c55-3f8a1b2c4d5e";
export const jobId = "01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e";

export interface Asked {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

/** Answers the n-th request, from 1. */
export type Handler = (n: number, response: ServerResponse, asked: Asked) => void;

export interface Simulator {
  asked: Asked[];
  client: (options?: Partial<Options>) => Triprize;
}

/** Starts a server, which ends with the test. */
export async function simulate(t: TestContext, answer: Handler): Promise<Simulator> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (part: string) => {
      body += part;
    });
    request.on("end", () => {
      const one = { method: request.method ?? "", url: request.url ?? "", headers: request.headers, body };
      answer(asked.push(one), response, one);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return {
    asked,
    client: (options = {}) =>
      new Triprize({ baseUrl: `http://127.0.0.1:${port}/`, credential: "tp_key", timeoutMs: 600_000, retry: { firstMs: 1, longestMs: 2 }, ...options }),
  };
}

export function say(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

export function refuse(response: ServerResponse, status: number, code: string, headers: Record<string, string> = {}): void {
  say(response, status, { type: `/problems#${code}`, title: code, status, detail: "because", code, request_id: "request-1" }, { "Content-Type": "application/problem+json", ...headers });
}

export function job(state: string): Record<string, unknown> {
  const result = { purchase_id: jobId, positions: [{ layer: 3, column: 2, price: 100 }], amount: 100, currency: "JPY" };
  const problem = { type: "/problems#sold-out", title: "Sold out", status: 409, detail: "every position is sold", code: "sold-out" };
  return { id: jobId, kind: "purchase", state, result: state === "succeeded" ? result : null, problem: state === "failed" ? problem : null };
}
