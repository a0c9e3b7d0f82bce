// The requests that this page makes, and only for an address with ?campaign=: for the proof, and
// for what the server calls the positions.

const { largest } = globalThis.drawVerifier;

// Undrawn is thrown for a campaign without a draw so far.
export class Undrawn extends Error {}

// downloadLabels returns what the server calls the positions, or null: without them the page
// shows layers and columns.
export async function downloadLabels(campaign) {
  try {
    const response = await fetch(`/v1/campaigns/${campaign.toLowerCase()}/draw/labels`, { headers: { Accept: "application/json" }, credentials: "omit", redirect: "error" });
    const labels = response.ok ? await response.json() : null;
    return Array.isArray(labels?.layers) ? labels : null;
  } catch {
    return null;
  }
}

export async function download(campaign, progress) {
  if (!/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(campaign)) throw new Error("The address names no campaign: its id must be a UUID.");
  if (!location.protocol.startsWith("http")) throw new Error("This is a copy of the page without a server. Choose a file, or open the page at the server of the campaign.");
  let response;
  try {
    response = await fetch(`/v1/campaigns/${campaign.toLowerCase()}/draw/proof`, { headers: { Accept: "application/json" }, credentials: "omit", redirect: "error" });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (response.status === 409) throw new Undrawn("This campaign is not drawn yet. Its proof will be at this address after the draw.");
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
