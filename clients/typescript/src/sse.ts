// Reads event streams: text/event-stream of the HTML standard, section 9.2.

import { MalformedError } from "./errors.js";

/** One event. */
export interface StreamEvent {
  /** Its type; "message" when the server does not say. */
  name: string;
  data: string;
  /** The last id that was sent, for Last-Event-ID. */
  id: string;
}

/** Bounds a line and an event, in characters. */
const maxEvent = 1 << 20;

/** Turns the bytes of one connection into events. It leaves out an event that is cut off. */
export class EventReader {
  #decoder = new TextDecoder();
  #rest = "";
  #name = "";
  #data: string[] = [];
  #size = 0;

  /** The last id, also of events without data. */
  id: string;
  /** How long to wait before connecting again, if the server has said. */
  retryMs: number | undefined;

  constructor(lastId: string) {
    this.id = lastId;
  }

  /** Takes the next bytes and returns the events that are complete. */
  push(bytes: Uint8Array): StreamEvent[] {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    const events: StreamEvent[] = [];
    const lines = text.split(/\r\n|\n|\r(?!$)/); // a \r at the end may be one half of \r\n
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        this.#dispatch(events);
      } else {
        this.#field(line);
      }
    }
    if (this.#rest.length > maxEvent) {
      throw new MalformedError(`a line of more than ${maxEvent} characters in a stream`);
    }
    return events;
  }

  #dispatch(events: StreamEvent[]): void {
    if (this.#data.length > 0) {
      events.push({ name: this.#name === "" ? "message" : this.#name, data: this.#data.join("\n"), id: this.id });
    }
    this.#name = "";
    this.#data = [];
    this.#size = 0;
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    switch (name) {
      case "event":
        this.#name = value;
        break;
      case "data":
        this.#data.push(value);
        this.#size += value.length;
        if (this.#size > maxEvent) {
          throw new MalformedError(`an event of more than ${maxEvent} characters`);
        }
        break;
      case "id":
        if (!value.includes("\0")) {
          this.id = value;
        }
        break;
      case "retry":
        if (/^\d{1,9}$/.test(value)) {
          this.retryMs = Math.min(Math.max(Number(value), 100), 300_000);
        }
        break;
      default: // a comment, or a field of a newer server
    }
  }
}
