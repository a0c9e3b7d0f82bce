// Shows the state of a check, and its report.

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

// verdictOf returns [class, words] of a report.
function verdictOf({ verdict, onlyChainUnknown, campaign }) {
  if (onlyChainUnknown) return ["failed", "All other checks hold. The draw is as good as its chain, and this page does not know it: its maker may know its rounds beforehand. If you trust it, name it above."];
  if (verdict === "failed") return ["failed", "A check failed. This is not the proof of an honest draw, or not in its true form."];
  if (campaign.ownChain) return ["weaker", "Every check holds, on a chain that is not drand’s public one: its maker may know every round beforehand."];
  return ["verified", "Every check holds."];
}

// showReport shows a report, or nothing for null.
export function showReport(report, labels = null) {
  byID("report").hidden = !report;
  if (!report) return;
  const [className, words] = verdictOf(report);
  byID("verdict").className = className;
  byID("verdict-title").textContent = report.headline[0].toUpperCase() + report.headline.slice(1);
  const bad = report.checks.filter((c) => c.status !== "ok");
  byID("verdict-text").textContent = words + (bad.length ? " See: " + bad.map((c) => c.name).join(", ") + "." : "");
  const called = callerOf(labels, report.campaign?.campaign_id);
  showPurchase(report, called);
  showMeaning(report);
  showChecks(report.checks);
  showFacts(report.campaign);
  showWinners(report, called);
  byID("verdict").focus();
}

// callerOf returns a function from a position to what the server calls it, with the words that this
// is not proven; without labels of the campaign it returns "".
function callerOf(labels, campaign) {
  const layers = new Map(labels && labels.campaign_id === campaign ? labels.layers.map((l) => [l.layer, l]) : []);
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

const words = { ok: "holds", failed: "fails", "not-made": "not made" };

function showChecks(checks) {
  byID("checks").replaceChildren(...checks.map(({ name, status, text }) => {
    const item = element("li", undefined, status);
    item.append(element("span", words[status], "status"), element("code", name), element("span", text, "text"));
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
  byID("called").hidden = !named;
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
