// Follows an event stream over as many connections as it takes.

import { MalformedError, refusalOf, TriprizeError } from "./errors.js";
import { mayRepeat, pauseBefore, sleep, type RetryPolicy } from "./retry.js";
import { EventReader, type StreamEvent } from "./sse.js";
import { Deadline, open, read, type Sent, type Settings } from "./transport.js";

/** What is followed: the path of a stream, and the name of its events. */
export interface Followed {
  path: string;
  name: string;
  signal?: AbortSignal | undefined;
}

interface State {
  id: string;
  retryMs: number;
  heard: boolean; // there was an event on this connection
  over: boolean; // the server has said that there are no more
}

/**
 * Yields the data of each event. It connects again where the stream broke, and ends when the server says that nothing
 * more will come, or with an error: the signal ends, the server refuses, or too many attempts in a row fail.
 */
export async function* follow(settings: Settings, retry: RetryPolicy, what: Followed): AsyncGenerator<unknown, void, undefined> {
  const state: State = { id: "", retryMs: 2000, heard: false, over: false };
  for (let failures = 0; ; ) {
    let failure: unknown;
    try {
      for await (const event of listen(settings, what, state)) {
        if (event.name === "end") {
          if (reasonOf(event) === "over") {
            return;
          }
          break;
        }
        if (event.name === what.name) {
          yield parsed(event.data);
        }
      }
      if (state.over) {
        return;
      }
    } catch (e) {
      failure = e;
    }
    what.signal?.throwIfAborted();
    failures = state.heard || failure === undefined ? 0 : failures;
    if (failure === undefined) {
      await sleep(state.retryMs, what.signal);
      continue;
    }
    failures++;
    if (failures >= retry.attempts || !mayRepeat(failure, true)) {
      throw failure;
    }
    await sleep(Math.max(pauseBefore(failures, failure, retry), failure instanceof TriprizeError ? failure.retryAfterMs : 0), what.signal);
  }
}

/** Connects once. It ends when the server ends the stream, which it does from time to time. */
async function* listen(settings: Settings, what: Followed, state: State): AsyncGenerator<StreamEvent, void, undefined> {
  const silence = 4 * settings.timeoutMs; // servers send a comment from time to time
  const deadline = new Deadline(what.signal, silence);
  const request: Sent = { method: "GET", path: what.path, accept: "text/event-stream, application/problem+json", lastEventId: state.id };
  state.heard = false;
  try {
    const response = await open(settings, request, deadline.signal);
    if (response.status === 204) {
      state.over = true;
      return;
    }
    if (!response.ok) {
      throw refusalOf(response, await read(response, settings.maxAnswerBytes));
    }
    if (response.body === null || !(response.headers.get("Content-Type") ?? "").toLowerCase().startsWith("text/event-stream")) {
      throw new MalformedError(`${what.path} is not an event stream`);
    }
    const events = new EventReader(state.id);
    const reader = response.body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) {
          return;
        }
        deadline.restart(silence);
        for (const event of events.push(value)) {
          state.id = event.id;
          state.heard = true;
          yield event;
        }
        state.retryMs = events.retryMs ?? state.retryMs;
      }
    } finally {
      await reader.cancel().catch(() => undefined); // it may have failed already
    }
  } finally {
    deadline.close();
  }
}

function parsed(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw new MalformedError("an event that is not JSON", { cause });
  }
}

function reasonOf(event: StreamEvent): unknown {
  const end = parsed(event.data);
  return typeof end === "object" && end !== null && "reason" in end ? end.reason : undefined;
}
