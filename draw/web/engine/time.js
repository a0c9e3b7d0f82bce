// Times in documents: 2006-01-02T15:04:05.000000Z, in microseconds since 1970 as BigInt.

export function microseconds(text) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/.exec(text);
  if (!found) return null;
  const milliseconds = Date.parse(found[1] + "Z");
  if (found[1].startsWith("0000") || Number.isNaN(milliseconds) || new Date(milliseconds).toISOString() !== found[1] + ".000Z") return null; // such as 31 February
  return BigInt(milliseconds) * 1000n + BigInt(found[2]);
}

const day = 86_400_000_000n;
const latest = 100_000_000n * day; // what a Date can show

// show returns a time for people.
export function show(us) {
  if (us > latest || us < -latest) return `${us} µs after 1970`;
  return new Date(Number(us / 1000n)).toISOString().replace("T", " ").replace(/\.000Z$/, "").replace("Z", "") + " UTC";
}
