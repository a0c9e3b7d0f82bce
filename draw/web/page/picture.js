// The positions as a picture: a triangle as a triangle, any other shape as rows. The table
// of winners says the same in words.

const largestCell = 26, smallestCell = 4; // CSS pixels; below, sold positions are drawn as one line
const highest = 8000; // CSS pixels
let campaign = null;

export function setPicture(shown) {
  campaign = shown;
  document.getElementById("picture").hidden = true;
}

export function draw() {
  const figure = document.getElementById("picture"), canvas = document.getElementById("canvas");
  if (!campaign) return;
  figure.hidden = false;
  const widest = campaign.layers.reduce((most, { positions }) => Math.max(most, positions), 1);
  const width = figure.clientWidth;
  const cell = Math.min(largestCell, width / widest);
  const line = campaign.triangle ? cell : Math.max(cell, 3);
  const height = Math.ceil(campaign.layers.length * line);
  figure.hidden = height > highest;
  if (figure.hidden || width === 0) return;
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const place = placer(width, cell, line);
  drawPositions(context, place, cell, line);
  drawWinners(context, place, cell, line);
  const won = campaign.winners.filter((w) => w.awarded !== false).length;
  canvas.setAttribute("aria-label", `${campaign.triangle ? "A triangle" : "Rows"} with ${campaign.layers.length} layers and ${campaign.positions} positions; ${won} won. The table lists them.`);
}

// placer returns a function from the index of a layer and a column to the corner of a cell.
function placer(width, cell, line) {
  return (i, column) => {
    const left = campaign.triangle ? (width - campaign.layers[i].positions * cell) / 2 : 0;
    return [left + (column - 1) * cell, i * line];
  };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

function drawPositions(context, place, cell, line) {
  const gap = cell >= smallestCell ? Math.min(2, cell / 5) : 0;
  const colours = [colour("--sold"), colour("--unsold")];
  let first = 0;
  campaign.layers.forEach(({ positions }, i) => {
    const free = (column) => (campaign.unsold ? campaign.unsold[first + column - 1] : 0);
    for (let column = 1; column <= positions; ) {
      let end = column + 1;
      if (gap === 0) while (end <= positions && free(end) === free(column)) end++;
      const [x, y] = place(i, column);
      context.fillStyle = colours[free(column)];
      context.fillRect(x, y, (end - column) * cell - gap, line - gap);
      column = end;
    }
    first += positions;
  });
}

function drawWinners(context, place, cell, line) {
  const rows = new Map(campaign.layers.map(({ layer }, i) => [layer, i]));
  const size = Math.max(cell, 5), inset = cell >= smallestCell ? Math.min(2, cell / 5) : 0;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `bold ${Math.floor(cell / 2.4)}px system-ui, sans-serif`;
  for (const { prize, layer, column, awarded } of campaign.winners) {
    if (awarded === false || !rows.has(layer)) continue;
    const [x, y] = place(rows.get(layer), column);
    context.fillStyle = colour("--won");
    context.fillRect(x - (size - cell) / 2, y - (size - Math.min(cell, line)) / 2, size - inset, size - inset);
    if (cell < 18) continue;
    context.fillStyle = colour("--won-text");
    context.fillText(String(prize), x + (cell - inset) / 2, y + (line - inset) / 2, cell - inset);
  }
}
