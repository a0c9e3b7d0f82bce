import assert from "node:assert/strict";
import { test } from "node:test";

import { MalformedError, TriprizeError } from "../src/index.js";
import { EventReader } from "../src/sse.js";
import { campaign, job, jobId, refuse, say, simulate, type Asked } from "./simulator.js";
import type { ServerResponse } from "node:http";

const stream = { "Content-Type": "text/event-stream" };

test("events are read as the standard says, however they are cut into pieces", () => {
  const text = ": hello\r\nid: 1\nevent: job\ndata: {\ndata:}\n\ndata: second\rid: 2\r\rretry: 7\nevent: none\n\nid: 3\ndata\n\ndata: cut";
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const reader = new EventReader("0");
    const events = [];
    for (let at = 0; at < bytes.length; at += size) {
      events.push(...reader.push(bytes.subarray(at, at + size)));
    }
    assert.deepEqual(events, [
      { name: "job", data: "{\n}", id: "1" },
      { name: "message", data: "second", id: "2" },
      { name: "message", data: "", id: "3" },
    ], `pieces of ${size}`);
    assert.equal(reader.retryMs, 100);
  }
});

test("an event without an end is not kept for ever", () => {
  const reader = new EventReader("");
  const line = new TextEncoder().encode(`data: ${"x".repeat(1 << 18)}\n`);
  assert.throws(() => {
    for (let i = 0; i < 5; i++) {
      reader.push(line);
    }
  }, MalformedError);
  assert.throws(() => new EventReader("").push(new Uint8Array((1 << 20) + 1)), MalformedError);
});

/** Sends an event. */
function send(response: ServerResponse, id: number, name: string, data: unknown): void {
  if (!response.headersSent) {
    response.writeHead(200, stream);
    response.write("retry: 100\n\n");
  }
  response.write(`id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
}

test("a stream is taken up where it broke, until the job is final", async (t) => {
  const s = await simulate(t, (n, response, asked: Asked) => {
    switch (n) {
      case 1:
        send(response, 1, "job", job("queued"));
        response.write("id: 9\nevent: job\ndata: {", () => response.destroy());
        break;
      case 2:
        refuse(response, 503, "unavailable");
        break;
      case 3:
        assert.equal(asked.headers["last-event-id"], "1");
        send(response, 2, "news", {});
        send(response, 3, "job", job("awaiting_action"));
        send(response, 4, "end", { reason: "age" });
        response.end();
        break;
      default:
        assert.equal(asked.headers["last-event-id"], "4");
        send(response, 5, "job", job("succeeded"));
    }
  });
  const states: string[] = [];
  for await (const now of s.client().followJob(jobId)) {
    states.push(now.state);
  }
  assert.deepEqual(states, ["queued", "awaiting_action", "succeeded"]);
  assert.equal(s.asked.length, 4);
});

test("a stream ends with its last event, or when the server says that it is over", async (t) => {
  const active = { state: "active", board_version: 1 }, end = { reason: "over" };
  for (const [name, answers, states] of [
    ["draw", [["draw", { state: "drawing" }], ["draw", { state: "completed" }]], ["drawing", "completed"]], // a connection for each
    ["campaign", [["campaign", active], ["end", end]], ["active"]],
    ["campaign", [["campaign", active], 204], ["active"]],
  ] as const) {
    const s = await simulate(t, (n, response) => {
      const answer = answers[n - 1];
      if (typeof answer === "object") {
        send(response, n, answer[0], answer[1]);
        response.end();
      } else {
        response.writeHead(204).end();
      }
    });
    const got: string[] = [];
    for await (const event of name === "draw" ? s.client().followDraw(campaign) : s.client().followCampaign(campaign)) {
      got.push(event.state);
    }
    assert.deepEqual(got, states);
    assert.equal(s.asked.length, answers.length);
    assert.equal(s.asked[0]?.url, `/v1/campaigns/${campaign}/${name === "draw" ? "draw/" : ""}events`);
  }
});

test("a refused stream is an error, and too many failures in a row are", async (t) => {
  for (const [status, attempts] of [[404, 1], [503, 3]] as const) {
    const s = await simulate(t, (_, response) => refuse(response, status, "some-code"));
    await assert.rejects(async () => {
      for await (const _ of s.client({ retry: { attempts: 3, firstMs: 0, longestMs: 0 } }).followJob(jobId)) {
        assert.fail("there is no event");
      }
    }, TriprizeError);
    assert.equal(s.asked.length, attempts);
  }
});

test("a stream that is not wanted any more is closed", async (t) => {
  let closed: () => void;
  const gone = new Promise<void>((resolve) => (closed = resolve));
  const s = await simulate(t, (_, response) => {
    response.on("close", () => closed());
    send(response, 1, "job", job("queued"));
  });
  for await (const now of s.client().followJob(jobId)) {
    assert.equal(now.state, "queued");
    break;
  }
  await gone;
});

test("the end of a signal ends a stream at once", async (t) => {
  const controller = new AbortController();
  const reason = new Error("enough");
  const s = await simulate(t, (_, response) => send(response, 1, "job", job("queued")));
  await assert.rejects(async () => {
    for await (const _ of s.client().followJob(jobId, { signal: controller.signal })) {
      controller.abort(reason);
    }
  }, reason);
  assert.equal(s.asked.length, 1);
});

test("a silent stream is taken up again", async (t) => {
  const s = await simulate(t, (n, response) => send(response, n, "job", job(n === 1 ? "queued" : "succeeded")));
  const states: string[] = [];
  for await (const now of s.client({ timeoutMs: 250, retry: { attempts: 1000, firstMs: 1, longestMs: 2 } }).followJob(jobId)) { // after four times as long
    states.push(now.state);
  }
  assert.equal(states.at(-1), "succeeded");
  assert.ok(s.asked.length >= 2);
});

test("a board is followed without a gap", async (t) => {
  const board = (version: number, since: number | null) => ({ board_version: version, since, positions: [] });
  const s = await simulate(t, (_, response, asked) => {
    if (asked.url.startsWith(`/v1/campaigns/${campaign}/positions`)) {
      say(response, 200, board(Number(new URL(asked.url, "http://x").searchParams.get("min_version")), null));
      return;
    }
    assert.match(asked.url, /\?positions=true$/);
    const event = (version: number, b: unknown, state = "active"): void => send(response, version, "campaign", { state, board_version: version, board: b });
    event(3, board(3, null));
    event(4, board(4, 3));
    event(7, board(7, 5)); // something is missing: 4 to 5
    event(9, null); // too much for an event
    event(10, board(10, 9), "completed");
  });
  const versions: number[] = [];
  for await (const { board: b } of s.client().followBoard(campaign)) {
    versions.push(b.board_version);
  }
  assert.deepEqual(versions, [3, 4, 7, 9, 10]);
  assert.deepEqual(s.asked.slice(1).map((asked) => asked.url.split("?")[1]), ["min_version=7&since=4", "min_version=9&since=7"]);
});
