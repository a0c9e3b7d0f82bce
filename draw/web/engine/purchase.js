// The checks of a proof of purchase beside a proof document.

import { sha256 } from "@noble/hashes/sha2.js";
import { concat, equal, u32, unhex, utf8 } from "./bytes.js";
import { Failed } from "./checks.js";
import { leadsTo } from "./tree.js";

const fail = (why) => { throw new Failed(why); };

export function purchaseCampaign(p, d) {
  if (p.campaign_id !== d.campaign_id) fail("it is of another campaign");
  if (p.root !== d.root) fail("it has another root: one of the two is not of the list that was drawn");
  if (p.count !== d.count) fail("it has another count: one of the two is not of the list that was drawn");
  return "It is of this campaign and of this list.";
}

export function inclusion(p, d) {
  let before = -1;
  for (const leaf of p.leaves) {
    const where = `(${leaf.layer}, ${leaf.column})`;
    if (leaf.index <= before) fail(`${where} is out of order`);
    before = leaf.index;
    if (leaf.layer > 0xffffffff || leaf.column > 0xffffffff) fail(`there is no position ${where}`);
    const holder = sha256(concat(unhex(leaf.nonce), utf8(leaf.user_id)));
    const bytes = concat(u32(leaf.layer), u32(leaf.column), unhex(leaf.purchase_id), holder);
    if (!leadsTo(bytes, leaf.index, p.count, leaf.path.map(unhex), unhex(p.root))) fail(`${where}: its path does not lead to the root`);
    if (leaf.index >= d.sold.length || !equal(d.sold.at(leaf.index), bytes)) fail(`${where} is not line ${leaf.index} of the list`);
  }
  return `${p.leaves.map((leaf) => `(${leaf.layer}, ${leaf.column})`).join(", ")}: in the list that was drawn.`;
}

// outcomeOf returns the positions of a purchase, each with what it won.
export function outcomeOf(p, d) {
  const at = (position) => `${position.layer} ${position.column}`;
  const won = new Map(d.winners.map((w) => [at(w), { prize: w.prize, name: w.name }])); // no position wins twice
  return p.leaves.map(({ layer, column }) => ({ layer, column, prizes: won.has(at({ layer, column })) ? [won.get(at({ layer, column }))] : [] }));
}
