// Buys positions one after the other, and says what it has got: a line of JSON for each purchase.
// API is the address, APP the key of an app, CAMPAIGN the campaign, USER_ID who buys, COUNT how often.

import { purchased, Triprize, TriprizeError } from "../src/index.js";

const { API = "", APP = "", CAMPAIGN = "", USER_ID = "", COUNT = "0" } = process.env;
const triprize = new Triprize({ baseUrl: API, credential: APP, timeoutMs: 600_000, retry: { attempts: 1000, elapsedMs: 600_000, longestMs: 500 } });

function order(n: number): Parameters<Triprize["buy"]> {
  const key = `${USER_ID}-${n}-${CAMPAIGN}`;
  return [CAMPAIGN, { user_id: USER_ID, selection: { quantity: 1 }, payment: { method: "external", reference: key } }, { key }];
}

for (let n = 1; n <= Number(COUNT); n++) {
  console.log(JSON.stringify(purchased(await triprize.buy(...order(n)))));
}
try {
  if (process.env.LATE !== undefined) {
    purchased(await triprize.buy(...order(Number(COUNT) + 1)));
    throw new Error("a position was sold that does not exist");
  }
} catch (e) {
  if (!(e instanceof TriprizeError && ["sold-out", "campaign-not-active"].includes(e.code))) {
    throw e;
  }
}
