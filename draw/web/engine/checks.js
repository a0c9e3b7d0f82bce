// The checks of a proof document. Each takes its inputs as they stand there, so that one
// wrong thing fails as few checks as possible. The list is that of docs/draw.md.

import { sha256 } from "@noble/hashes/sha2.js";
import { concat, equal, hex, microseconds, show, u32, unhex, utf8 } from "./bytes.js";
import { encode } from "./canonical.js";
import { rulesForm } from "./form.js";
import { chainHash, dueAt, isSigned, leadsTo, newestAt, quicknet, rootOf, selectFor, testID, version } from "./procedure.js";

// A check returns what it found in words, or nothing(why); it throws Failed, or NotMade, with the reason.
export class Failed extends Error {}
export class NotMade extends Error {}
export class UnknownChain extends Failed {}

const fail = (why) => { throw new Failed(why); };
const count = (n, what) => `${n.toLocaleString("en")} ${n === 1 ? what : `${what}s`.replace("ys", "ies")}`;
// nothing is what a check found that holds because the draw has nothing that it could be about.
const nothing = (why) => ({ text: `${why}; there is nothing to check.`, nothing: true });
const noBeacon = nothing("The rules promise no beacon");

export function rules(d) {
  rulesForm(d.rules, "rules");
  const r = d.rules;
  if (r.version !== version) fail(`the rules are of version ${JSON.stringify(r.version)}`);
  if (r.campaign_id !== d.campaign_id) fail("the rules are those of another campaign");
  const layers = checkLayers(r);
  checkPrizes(r, layers);
  if (r.beacon && (r.beacon.period_s < 1 || r.beacon.period_s > largest)) fail(`no beacon has a period of ${r.beacon.period_s} s`);
  return `${count(r.layers.length, "layer")} with ${count(positionsOf(r), "position")}, ${count(r.prizes.length, "prize")}.`;
}

const largest = 0xffffffff; // number of a layer, a column, or of seconds between rounds

function checkLayers(r) {
  const layers = new Map();
  if (r.layers.length === 0) fail("there are no layers");
  r.layers.forEach(({ layer, positions }, i) => {
    if (layer < 1 || positions < 1 || layer > largest || positions > largest) fail(`there is no layer ${layer} with ${positions} positions`);
    if (i > 0 && layer <= r.layers[i - 1].layer) fail(`layer ${layer} is out of order`);
    if ("base_length" in r && (layer !== i + 1 || positions !== layer)) fail(`layer ${layer} with ${positions} positions is not of a triangle`);
    layers.set(layer, positions);
  });
  if ("base_length" in r && r.layers.length !== r.base_length) fail(`a triangle with base length ${r.base_length} does not have ${r.layers.length} layers`);
  return layers;
}

function checkPrizes(r, layers) {
  const prizes = new Map();
  r.prizes.forEach(({ number, layer }, i) => {
    if (number !== i + 1) fail(`prize ${number} stands where prize ${i + 1} must be`);
    if (!layers.has(layer)) fail(`prize ${number} is in layer ${layer}, which is not there`);
    if (i > 0 && layer < r.prizes[i - 1].layer) fail(`prize ${number} is out of the order of layers`);
    prizes.set(layer, (prizes.get(layer) ?? 0) + 1);
    if (prizes.get(layer) > layers.get(layer)) fail(`layer ${layer} has more prizes than positions`);
  });
}

export const positionsOf = (r) => r.layers.reduce((sum, { positions }) => sum + positions, 0);

export function commitment(d) {
  const rulesHash = sha256(utf8(encode(d.rules)));
  const found = sha256(concat(utf8(version + " commit\0"), unhex(d.campaign_id), rulesHash, unhex(d.secret)));
  if (hex(found) !== d.commitment) fail(`rules and secret give ${hex(found)}, and the commitment is ${d.commitment}`);
  return "Rules and secret give the commitment that the document states.";
}

export function soldList(d) {
  const layers = new Map(d.rules.layers.map(({ layer, positions }) => [layer, positions]));
  if (d.sold.tooLarge >= 0) fail(`line ${d.sold.tooLarge}: there is no such position`);
  let [lastLayer, lastColumn] = [0, 0];
  for (let i = 0; i < d.sold.length; i++) {
    const [layer, column] = d.sold.position(i);
    if (!layers.has(layer) || column < 1 || column > layers.get(layer)) fail(`line ${i}: there is no position (${layer}, ${column})`);
    if (layer === lastLayer && column === lastColumn) fail(`line ${i}: (${layer}, ${column}) is sold twice`);
    if (layer < lastLayer || (layer === lastLayer && column < lastColumn)) fail(`line ${i}: (${layer}, ${column}) is out of order`);
    [lastLayer, lastColumn] = [layer, column];
  }
  return "Every line is a position of the rules, in order, and none is there twice.";
}

export function soldCount(d) {
  if (d.count !== d.sold.length) fail(`count is ${d.count}, and the list has ${count(d.sold.length, "line")}`);
  const positions = positionsOf(d.rules);
  if (d.count > positions) fail(`there are only ${count(positions, "position")}`);
  if (d.count === positions) return `All ${count(positions, "position")} were sold.`;
  if (!d.rules.unsold) fail(`${d.count} of ${count(positions, "position")} were sold, and the rules do not allow a draw before all are`);
  return `${d.count.toLocaleString("en")} of ${count(positions, "position")} were sold; the rules allow a draw at the end of the sale.`;
}

export function root(d, _, progress) {
  if (d.sold.tooLarge >= 0) fail(`line ${d.sold.tooLarge} has a number that does not fit into a leaf`);
  const found = hex(rootOf(d.sold, progress));
  if (found !== d.root) fail(`the list has the root ${found}, and the document says ${d.root}`);
  return `The Merkle tree over ${count(d.sold.length, "line")} has the root that the document states.`;
}

export function freezeTime(d) {
  const end = d.rules.unsold?.ends_at;
  if (!end || d.count >= positionsOf(d.rules)) return nothing("The sale did not have to wait for its end");
  if (microseconds(d.frozen_at) < microseconds(end)) fail(`the list was frozen at ${d.frozen_at}, before the sale ended at ${end}`);
  return `The list was frozen after the sale's end at ${show(microseconds(end))}.`;
}

export function freezeHash(d) {
  const record = encode({
    version: d.version, campaign_id: d.campaign_id, commitment: d.commitment, root: d.root, count: d.count,
    frozen_at: d.frozen_at, round: d.round, secret: d.round === null ? null : d.secret,
  });
  const found = hex(sha256(utf8(`${version} freeze\0${record}`)));
  if (found !== d.freeze_hash) fail(`the freeze record has the hash ${found}, and the document says ${d.freeze_hash}`);
  return "The freeze record, made from this document, has the hash that it states.";
}

export function chain(d, { chainHashes }) {
  const promised = d.rules.beacon;
  if (!promised && !d.beacon) return noBeacon;
  if (!d.beacon) fail("the rules promise a beacon, and the document has none");
  if (!promised) fail("the document has a beacon that the rules do not know");
  const found = chainHash(d.beacon);
  if (found === null) fail(`no chain has a period of ${d.beacon.period_s} s`);
  if (found !== d.beacon.chain_hash) fail(`the chain's data have the hash ${found}, and the document says ${d.beacon.chain_hash}`);
  if (found !== promised.chain_hash) fail(`the rules promise the chain ${promised.chain_hash}, and this is ${found}`);
  if (d.beacon.period_s !== promised.period_s) fail(`the rules promise rounds of ${promised.period_s} s, and the chain has ${d.beacon.period_s} s`);
  if (found === quicknet) return "It is quicknet, drand's public chain.";
  const test = d.beacon.beacon_id === testID ? " This is a test chain: its maker knows every round beforehand." : "";
  if (!chainHashes.includes(found)) throw new UnknownChain(`${found} is not quicknet, drand's public chain. Its maker may know its rounds beforehand. If you trust it, name its hash.${test}`);
  return `It is the chain that you named, ${found}.${test}`;
}

export function round(d) {
  const promised = Boolean(d.rules.beacon);
  if (!promised && d.round === null) return noBeacon;
  if (!promised) fail("the freeze record names a round, and the rules know no beacon");
  if (d.round === null) fail("the rules promise a beacon, and the freeze record names no round");
  if (!d.beacon) fail("the document does not have the round");
  if (d.beacon.round !== d.round) fail(`the freeze record names round ${d.round}, and the document has round ${d.beacon.round}`);
  if (d.beacon.period_s < 1) fail("the chain's period is 0");
  const newest = newestAt(d.beacon, microseconds(d.frozen_at));
  const ahead = BigInt(d.round) - newest;
  if (ahead < 10n || ahead > 30n) fail(`round ${d.round} is ${ahead} after the newest at the freeze (${newest}); it must be 10 to 30 after it`);
  return `Round ${d.round} was ${ahead} rounds ahead when the list was frozen. It was due at ${show(dueAt(d.beacon, d.round))}.`;
}

export function signature(d) {
  if (!d.beacon && d.rules.beacon) throw new NotMade("the document has no beacon");
  if (!d.beacon) return noBeacon;
  if (!isSigned(d.beacon.public_key, d.beacon.round, d.beacon.signature)) fail(`the signature is not that of round ${d.beacon.round} under the chain's public key`);
  return `The signature is the one that the chain's key has for round ${d.beacon.round} (BLS12-381).`;
}

export function randomness(d) {
  if (!d.beacon) return nothing("The document has no beacon");
  const found = hex(sha256(unhex(d.beacon.signature)));
  if (found !== d.beacon.randomness) fail(`the signature has the hash ${found}, and the document says ${d.beacon.randomness}`);
  return "The randomness is the hash of that signature.";
}

export function winners(d) {
  const wanted = selectFor(d);
  if (wanted.length !== d.winners.length) fail(`there are ${count(wanted.length, "prize")}, and the document has ${count(d.winners.length, "winner")}`);
  wanted.forEach((line, i) => {
    if (encode(line) !== encode(d.winners[i])) fail(`prize ${i + 1}: the selection gives ${outcome(line)}, and the document says ${outcome(d.winners[i])}`);
  });
  const missing = wanted.filter((line) => line.awarded === false).length;
  return `The selection, made again, gives the same ${count(wanted.length, "outcome")}${missing ? `; ${missing} without anybody who could win` : ""}.`;
}

const outcome = (w) => `${JSON.stringify(w.name)} in layer ${w.layer}` + (w.awarded === false ? " to nobody" : ` to column ${w.column}, purchase ${w.purchase_id}`);

export function trust(d) {
  const wanted = d.rules.beacon ? "beacon" : "operator";
  if (d.trust !== wanted) fail(`the document says ${JSON.stringify(d.trust)}; by its rules it is "${wanted}"`);
  return `What this rests on is named as it is: "${wanted}".`;
}

// noted holds what the user noted against what the document states.
export function noted(stated, wanted) {
  if (stated !== wanted) fail(`you noted ${wanted}, and the document states ${stated}`);
  return "It is the one that you noted.";
}

// purchaseCampaign and inclusion are the checks of a proof of purchase p.
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
