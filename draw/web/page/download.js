// The requests that this page makes, and only for an address with ?campaign=: for the proof, for what
// the server calls the campaign and its positions, and before the draw for its state.

const { largest } = globalThis.drawVerifier;

// Undrawn is thrown for a campaign without a draw so far.
export class Undrawn extends Error {}

const drawOf = (campaign) => `/v1/campaigns/${campaign.toLowerCase()}/draw`;
const ask = (address, signal) => fetch(address, { headers: { Accept: "application/json" }, credentials: "omit", redirect: "error", signal });

// answer returns what the server answers soon, or null.
async function answer(address) {
  try {
    const response = await ask(address, AbortSignal.timeout?.(5000));
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

// downloadLabels returns what the server calls the positions, or null: without them the page
// shows layers and columns.
export async function downloadLabels(campaign) {
  const labels = await answer(`${drawOf(campaign)}/labels`);
  return Array.isArray(labels?.layers) ? labels : null;
}

// downloadName returns what the server calls the campaign on its public page, or "": not every campaign has one.
export async function downloadName(campaign) {
  const found = await answer(`/c/${campaign.toLowerCase()}/name`);
  return typeof found?.name === "string" ? found.name : "";
}

// undrawn says why there is no proof, as far as the server tells.
async function undrawn(campaign) {
  const draw = await answer(drawOf(campaign));
  if (draw?.state === "cancelled") return draw.freeze ? "The draw of this campaign was voided: nothing is drawn." : "This campaign was cancelled: nothing is drawn.";
  const voids = typeof draw?.voids_at === "string" ? ` The operator has announced to void the draw at ${draw.voids_at.slice(0, 40)}. Until then anybody who has the signature of its round can post it, to ${drawOf(campaign)}/round.` : "";
  return `This campaign is not drawn yet. Its proof will be at this address after the draw.${voids}`;
}

export async function download(campaign, progress) {
  if (!/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(campaign)) throw new Error("The address names no campaign: its id must be a UUID.");
  if (!location.protocol.startsWith("http")) throw new Error("This is a copy of the page without a server. Choose a file, or open the page at the server of the campaign.");
  let response;
  try {
    response = await ask(`${drawOf(campaign)}/proof`);
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (response.status === 409) throw new Undrawn(await undrawn(campaign));
  if (!response.ok) throw new Error(await problemOf(response));
  const size = Number(response.headers.get("Content-Length"));
  const reader = response.body.getReader();
  const parts = [];
  let loaded = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    loaded += value.length;
    if (loaded > largest) {
      await reader.cancel();
      throw new Error(`The server sends more than ${largest >> 20} MiB. No proof is as long.`);
    }
    if (size > 0) progress(Math.min(1, loaded / size));
  }
  return new Blob(parts);
}

async function problemOf(response) {
  let detail = "";
  try {
    const problem = await response.json();
    detail = [problem.title, problem.detail].filter((text) => typeof text === "string").join(": ").slice(0, 500);
  } catch {
    // not a problem document: the status must do
  }
  return `The server has no proof to show (${response.status}). ${detail}`.trim();
}
