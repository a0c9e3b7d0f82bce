// Shows the state of a check, its report, and the picture.

export const byID = (id) => document.getElementById(id);
const mostLines = 1000; // of the table of winners, and of the positions of a purchase
const longestText = 2500; // characters: a document can have any

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text.length > longestText ? text.slice(0, longestText) + "…" : text;
  if (className) made.className = className;
  return made;
}

// showStatus shows what is being done, or what the problem is. part is from 0 to 1.
export function showStatus(text, { part = null, problem = false } = {}) {
  const status = byID("status");
  if (status.textContent !== text) status.textContent = text;
  status.className = problem ? "problem" : "";
  const bar = byID("progress");
  bar.hidden = part === null;
  if (part !== null) bar.value = part;
}

// showBack shows the ways on from a campaign that is not drawn: to where the visitor came from,
// and to the same address once more.
export function showBack(shown) {
  const back = byID("back");
  back.hidden = !shown;
  if (!shown) return;
  const link = (text, href) => Object.assign(element("a", text), { href });
  const from = /^https?:/.test(document.referrer) ? document.referrer : "/";
  back.replaceChildren(link("Go back", from), " · ", link("Look again", location.href));
}

// verdictOf returns [class, words, title] of a report; without a title its headline is one.
function verdictOf({ verdict, onlyChainUnknown, campaign }) {
  if (onlyChainUnknown) return ["failed", "All other checks hold. The draw is as good as its chain, and this page does not know it: its maker may know its rounds beforehand. If you trust it, name it above."];
  if (verdict === "failed") return ["failed", "A check failed. This is not the proof of an honest draw, or not in its true form."];
  if (campaign.trust === "operator") {
    return ["weaker", "Every check that applies holds: the winners follow from rules, secret and list. No public beacon took part: " +
      "the operator knew the secret, and could have tried until the winners pleased.", "Consistent, but the operator could have known the winners beforehand"];
  }
  if (campaign.ownChain) return ["weaker", "Every check holds, on a chain that is not drand’s public one: its maker may know every round beforehand."];
  return ["verified", "Every check holds."];
}

// showReport shows a report, or nothing for null. said is {campaign, labels, name}, the server's words, or null.
export function showReport(report, said = null) {
  byID("report").hidden = !report;
  setPicture(null);
  if (!report) return;
  const [className, words, title = report.headline[0].toUpperCase() + report.headline.slice(1)] = verdictOf(report);
  byID("verdict").className = className;
  byID("verdict-title").textContent = title;
  const bad = report.checks.filter((c) => c.status !== "ok");
  byID("verdict-text").textContent = words + (bad.length ? " See: " + bad.map((c) => c.name).join(", ") + "." : "");
  const mine = said && said.campaign === report.campaign?.campaign_id ? said : null; // a file can be of another campaign
  byID("campaign").hidden = !mine?.name;
  byID("campaign-name").textContent = mine?.name.slice(0, 200) ?? "";
  const called = callerOf(mine?.labels);
  showPurchase(report, called);
  showMeaning(report);
  showChecks(report.checks);
  showFacts(report.campaign);
  showWinners(report, called);
  setPicture(report.campaign?.layers ? report.campaign : null);
  draw();
  byID("verdict").focus();
}

// callerOf returns a function from a position to what the server calls it, with the words that this
// is not proven; without labels of the campaign it returns "".
function callerOf(labels) {
  const layers = new Map(labels?.layers.map((l) => [l.layer, l]));
  return (layer, column) => {
    const { positions, first_number: first, label } = layers.get(layer) ?? {};
    if (!(column >= 1 && column <= positions)) return "";
    return typeof label === "string" && label !== "" ? `${label.slice(0, 100)} ${column}` : String(first + column - 1);
  };
}

function showPurchase({ purchase, checks }, called) {
  const section = byID("purchase-result");
  section.hidden = !checks.some((c) => c.name === "purchase-form");
  const list = byID("purchase-list");
  list.replaceChildren();
  for (const { layer, column, prizes } of purchase?.slice(0, mostLines) ?? []) {
    const won = prizes.length ? prizes.map(({ prize, name }) => `won prize ${prize}, ${name}`).join("; ") : "did not win";
    const name = called(layer, column);
    list.append(element("li", `Your position in layer ${layer}, column ${column}${name && ` (${name}, as the server says, not proven)`} took part and ${won}.`));
  }
  if (purchase?.length > mostLines) list.append(element("li", `and ${(purchase.length - mostLines).toLocaleString("en")} more`));
  if (!purchase) list.append(element("li", "The two documents do not show that your positions took part; the checks below say why."));
}

function showMeaning({ meaning }) {
  byID("meaning").hidden = !meaning;
  if (!meaning) return;
  byID("shows").replaceChildren(...meaning.shows.map((text) => element("li", text)));
  byID("open").replaceChildren(...meaning.open.map((text) => element("li", text)));
}

const words = { ok: "holds", failed: "fails", "not-made": "not made", nothing: "not applicable" };

function showChecks(checks) {
  byID("checks").replaceChildren(...checks.map(({ name, status, text, nothing }) => {
    const shown = nothing ? "nothing" : status;
    const item = element("li", undefined, shown);
    item.append(element("span", words[shown], "status"), element("code", name), element("span", text, "text"));
    return item;
  }));
}

function showFacts(campaign) {
  const facts = campaign
    ? [
        ["Campaign", campaign.campaign_id],
        ["Trust", campaign.trust],
        ["Sold", campaign.count.toLocaleString("en") + (campaign.positions ? ` of ${campaign.positions.toLocaleString("en")} positions` : "")],
        ["Frozen at", campaign.frozen_at],
        ["Commitment", campaign.commitment],
        ["Hash of the freeze record", campaign.freeze_hash],
        ["Root of the list", campaign.root],
      ]
    : [];
  byID("facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

function showWinners({ campaign, verdict }, called) {
  const sound = verdict === "verified";
  byID("drawn").hidden = !campaign || campaign.winners.length === 0;
  if (byID("drawn").hidden) return;
  byID("winners-title").textContent = sound ? "Winners" : "Winners that the document states (not verified)";
  const names = campaign.winners.slice(0, mostLines).map((w) => (w.awarded === false ? "" : called(w.layer, w.column)));
  const named = names.some(Boolean);
  byID("called").hidden = byID("called-note").hidden = !named;
  byID("winners").replaceChildren(...campaign.winners.slice(0, mostLines).map((w, i) => {
    const row = element("tr");
    const place = w.awarded === false ? "not awarded" : String(w.column);
    row.append(element("th", String(w.prize)), element("td", w.name), element("td", String(w.layer)), element("td", place), ...(named ? [element("td", names[i])] : []), element("td", w.purchase_id ?? "", "id"));
    row.firstChild.scope = "row";
    return row;
  }));
  const more = campaign.winners.length - mostLines;
  byID("more").textContent = more > 0 ? `and ${more.toLocaleString("en")} more` : "";
}

// The positions as a picture: a triangle as a triangle, any other shape as rows. The table
// of winners says the same in words.

const largestCell = 26, smallestCell = 4; // CSS pixels; below, positions are drawn without gaps
const high = 480, highest = 8000; // CSS pixels: what rows that wrap should not exceed, and what no picture may
let campaign = null;

function setPicture(shown) {
  campaign = shown;
  byID("picture").hidden = true;
}

// layoutOf returns the size of a cell, how many stand in a line, the line where each layer starts, and the height.
// Only rows wrap: one that is alone, and any whose cells would be too narrow.
function layoutOf({ layers, triangle }, width) {
  const lay = (cell, perLine, between) => {
    let line = 0;
    const starts = layers.map(({ positions }) => {
      const start = line;
      line += Math.ceil(positions / perLine) + between;
      return start;
    });
    return { cell, perLine, starts, height: Math.ceil((line - between) * cell) };
  };
  const longest = layers.reduce((most, { positions }) => Math.max(most, positions), 1);
  const whole = Math.min(largestCell, width / longest);
  if (triangle || (layers.length > 1 && whole >= smallestCell)) return lay(whole, longest, 0);
  for (let cell = largestCell; ; cell--) {
    const wrapped = lay(cell, Math.max(1, Math.floor(width / cell)), 0.5);
    if (cell === 1 || wrapped.height <= high) return wrapped;
  }
}

export function draw() {
  const figure = byID("picture"), canvas = byID("canvas");
  if (!campaign) return;
  figure.hidden = false;
  const width = figure.clientWidth;
  const { cell, perLine, starts, height } = layoutOf(campaign, width);
  figure.hidden = height > highest;
  if (figure.hidden || width === 0) return;
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  // place returns the corner of a cell, from the index of its layer and its column.
  const place = (i, column) => {
    const left = campaign.triangle ? (width - campaign.layers[i].positions * cell) / 2 : 0;
    return [left + ((column - 1) % perLine) * cell, (starts[i] + Math.floor((column - 1) / perLine)) * cell];
  };
  drawPositions(context, place, cell, perLine);
  drawWinners(context, place, cell);
  const won = campaign.winners.filter((w) => w.awarded !== false).length, n = campaign.layers.length;
  canvas.setAttribute("aria-label", `${campaign.triangle ? "A triangle" : "Rows"} with ${n} ${n === 1 ? "layer" : "layers"} and ${campaign.positions} positions; ${won} won. The table lists them.`);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

const gapOf = (cell) => (cell >= smallestCell ? Math.min(2, cell / 5) : 0);

function drawPositions(context, place, cell, perLine) {
  const gap = gapOf(cell), colours = [colour("--sold"), colour("--free")];
  let first = 0;
  campaign.layers.forEach(({ positions }, i) => {
    const free = (column) => (campaign.unsold ? campaign.unsold[first + column - 1] : 0);
    for (let column = 1; column <= positions; ) {
      let end = column + 1;
      if (gap === 0) while (end <= positions && (end - 1) % perLine > 0 && free(end) === free(column)) end++;
      const [x, y] = place(i, column);
      context.fillStyle = colours[free(column)];
      context.fillRect(x, y, (end - column) * cell - gap, cell - gap);
      column = end;
    }
    first += positions;
  });
}

function drawWinners(context, place, cell) {
  const rows = new Map(campaign.layers.map(({ layer }, i) => [layer, i]));
  const size = Math.max(cell, 5) - gapOf(cell), ground = colour("--ground");
  const squares = [[ground, size + 2], [colour("--won"), size]]; // an edge sets it off from what was sold
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `bold ${Math.floor(cell / 2.4)}px system-ui, sans-serif`;
  for (const { prize, layer, column, awarded } of campaign.winners) {
    if (awarded === false || !rows.has(layer)) continue;
    const [x, y] = place(rows.get(layer), column).map((corner) => corner + (cell - gapOf(cell)) / 2);
    for (const [fill, side] of squares) {
      context.fillStyle = fill;
      context.fillRect(x - side / 2, y - side / 2, side, side);
    }
    if (cell < 18) continue;
    context.fillStyle = ground;
    context.fillText(String(prize), x, y, size);
  }
}
