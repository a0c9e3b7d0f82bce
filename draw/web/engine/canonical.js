// Canonical JSON (RFC 8785) of documents whose numbers are whole, from 0 to 2^53 - 1. The
// reader takes the one canonical spelling and no other: it names the byte where a file
// leaves it. A file that it takes is, byte for byte, what encode would write.

// FormError says where a document is not what it must be.
export class FormError extends Error {}

export const largest = 256 << 20; // bytes of a document; 500,500 positions are 100 MB
export const largestMember = 16 << 20; // bytes of a member of a document, and of an element of its long list
const deepest = 16; // lists and objects in each other; a document has 4
const quote = 0x22, backslash = 0x5c;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// encode returns the canonical text of a value. JSON.stringify escapes strings as RFC 8785 does.
export function encode(value) {
  if (Array.isArray(value)) return "[" + value.map(encode).join(",") + "]";
  if (value !== null && typeof value === "object") {
    const names = Object.keys(value).sort(); // by UTF-16 code units
    return "{" + names.map((name) => JSON.stringify(name) + ":" + encode(value[name])).join(",") + "}";
  }
  return JSON.stringify(value);
}

// read returns an object. known has a check for each member that it may have, which takes the
// value and the name: a member is checked as it is read, so that a wrong file is not read to its
// end. The elements of the list of that name go to each, one by one, and are not kept: the list
// may be long. bytes is null for a file that was too long to be read.
export function read(bytes, known, listName, each) {
  if (bytes === null || bytes.length > largest) throw new FormError(`the file has more than ${largest >> 20} MiB, so it was not read`);
  const reader = new Reader(bytes, known, listName, each);
  if (bytes.length === 0) throw new FormError("the file is empty");
  const value = reader.value(0);
  if (reader.at !== bytes.length) reader.fail("there is something after the document");
  return value;
}

class Reader {
  constructor(bytes, known, listName, each) {
    this.bytes = bytes;
    this.at = 0;
    this.until = largestMember; // where what is read now must end
    this.known = known;
    this.listName = listName;
    this.each = each;
  }

  fail(what) {
    throw new FormError(`byte ${this.at}: ${what}`);
  }

  // inTime fails when what is read now is too long.
  inTime() {
    if (this.at > this.until) this.fail(`a member has more than ${largestMember >> 20} MiB`);
  }

  // outermost reads a member of the document.
  outermost(name) {
    if (!this.known.has(name)) throw new FormError(`the document has a member ${JSON.stringify(name)}, which is not known`);
    this.until = this.at + largestMember;
    const streamed = name === this.listName && this.bytes[this.at] === 0x5b;
    const value = streamed ? this.list(2, this.each) : this.value(1);
    this.inTime();
    this.known.get(name)(value, name);
    this.until = this.at + largestMember; // for the next name
    return value;
  }

  value(depth) {
    this.inTime();
    const c = this.bytes[this.at];
    if (c === 0x7b) return this.object(depth + 1);
    if (c === 0x5b) return this.list(depth + 1, null);
    if (c === quote) return this.string();
    if (c >= 0x30 && c <= 0x39) return this.number();
    for (const word of ["null", "true", "false"]) {
      if (String.fromCharCode(...this.bytes.subarray(this.at, this.at + word.length)) !== word) continue;
      this.at += word.length;
      return JSON.parse(word);
    }
    if (c === undefined) this.fail("the file ends too early");
    if (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) this.fail("canonical JSON has no white space here");
    if (c === 0x2d) this.fail("no number of this document is negative");
    return this.fail("this is not JSON");
  }

  expect(code, what) {
    if (this.bytes[this.at] !== code) this.fail(`${what} must be here`);
    this.at++;
  }

  enter(depth) {
    if (depth > deepest) this.fail(`lists and objects stand in each other more than ${deepest} deep`);
    this.at++;
  }

  object(depth) {
    this.enter(depth);
    const members = Object.create(null);
    let before = null;
    if (this.bytes[this.at] === 0x7d) {
      this.at++;
      return members;
    }
    for (;;) {
      if (this.bytes[this.at] !== quote) this.fail("the name of a member must be here");
      const start = this.at;
      const name = this.string();
      if (before !== null && !(before < name)) {
        this.at = start;
        this.fail(`the member ${JSON.stringify(name)} is ${before === name ? "there twice" : "out of order"}`);
      }
      before = name;
      this.expect(0x3a, "a colon");
      members[name] = depth === 1 ? this.outermost(name) : this.value(depth);
      if (this.bytes[this.at] !== 0x2c) break;
      this.at++;
    }
    this.expect(0x7d, "a comma or the end of the object");
    return members;
  }

  list(depth, each) {
    this.enter(depth);
    const elements = [];
    if (this.bytes[this.at] === 0x5d) {
      this.at++;
      return elements;
    }
    for (let i = 0; ; i++) {
      const element = this.value(depth);
      if (each) {
        each(element, i, this.at);
        this.until = this.at + largestMember;
      } else elements.push(element);
      if (this.bytes[this.at] !== 0x2c) break;
      this.at++;
    }
    this.expect(0x5d, "a comma or the end of the list");
    return elements;
  }

  number() {
    const start = this.at;
    let value = 0;
    while (this.bytes[this.at] >= 0x30 && this.bytes[this.at] <= 0x39) {
      value = value * 10 + (this.bytes[this.at++] - 0x30); // exact up to 2^53, and never rounded below it
      if (value > Number.MAX_SAFE_INTEGER) this.fail("a number is above 2^53 - 1");
    }
    if (this.bytes[start] === 0x30 && this.at > start + 1) this.fail("a number begins with 0");
    const next = this.bytes[this.at];
    if (next === 0x2e || next === 0x65 || next === 0x45) this.fail("all numbers of this document are whole");
    return value;
  }

  string() {
    const start = ++this.at;
    let plain = true;
    for (;;) {
      const c = this.bytes[this.at];
      if (c === quote) break;
      if (c === undefined) this.fail("the file ends within a text");
      if (c < 0x20) this.fail("a control character stands in a text");
      if (c === backslash) return this.escaped(start);
      if (c >= 0x80) plain = false;
      this.at++;
    }
    this.inTime();
    const text = plain && this.at - start < 1024
      ? String.fromCharCode.apply(null, this.bytes.subarray(start, this.at))
      : this.decode(start);
    this.at++;
    return text;
  }

  decode(start) {
    try {
      return decoder.decode(this.bytes.subarray(start, this.at));
    } catch {
      this.at = start;
      return this.fail("a text is not UTF-8");
    }
  }

  // escaped reads the rest of a string that has a backslash, from its start: this.at is on it.
  escaped(start) {
    while (this.bytes[this.at] !== quote) {
      if (this.bytes[this.at] === undefined) this.fail("the file ends within a text");
      this.at += this.bytes[this.at] === backslash ? 2 : 1;
    }
    this.inTime();
    const raw = `"${this.decode(start)}"`;
    const text = parsed(raw);
    if (text === null || JSON.stringify(text) !== raw || loneSurrogate.test(text)) {
      this.at = start;
      this.fail("a text is not escaped as canonical JSON does");
    }
    this.at++;
    return text;
  }
}

const loneSurrogate = /\p{Surrogate}/u;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
