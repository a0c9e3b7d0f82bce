// The positions of a campaign as a picture that follows what happens: it asks for what has changed every two seconds.
// Up to 2,000 positions are elements. More are drawn on a canvas; where a position has no pixel, a row shows shares.
"use strict";
(() => {
  const names = ["free", "held", "reserved", "sold", "blocked", "won"], inBars = [5, 3, 2, 1, 4, 0];
  const mostElements = 2000, labelWidth = 88, highest = 1200; // pixels
  const codeOf = (p) => p.prize ? 5 : Math.max(0, names.indexOf(p.state)); // available and unsold are free
  const make = (name, text, data) => { const e = document.createElement(name); e.textContent = text; Object.assign(e.dataset, data); return e; };
  const apart = (text) => `\u2068${text}\u2069`; // a name of others turns nothing around it
  const clamp = (low, n, high) => Math.max(low, Math.min(n, high));

  // rowsOf reads the shape from the table of layers.
  const rowsOf = () => [...document.querySelectorAll("#layers tbody tr")].map(({dataset: d}) => ({label: d.label, total: Number(d.total),
    aisles: new Set((d.aisles.match(/\d+/g) ?? []).map(Number)), states: new Uint8Array(Number(d.total))}));

  // elements shows each position as one.
  function elements(picture, board) {
    picture.append(...board.rows.map((row, i) => {
      const line = make("div", "", {layer: i + 1}), seats = make("div", "");
      line.className = "row"; seats.className = "seats";
      row.seats = Array.from(row.states, (_, at) => make("span", "", {state: "free", at: `${i + 1}/${at + 1}`}));
      for (const column of row.aisles) if (row.seats[column - 1]) row.seats[column - 1].dataset.aisle = "";
      seats.append(...row.seats);
      if (board.named) line.append(Object.assign(make("span", row.label), {dir: "auto"}));
      line.append(seats);
      return line;
    }));
    const fit = () => {
      const room = (picture.clientWidth - (board.named ? labelWidth : 0)) / board.widest - 1;
      picture.style.setProperty("--cell", `${board.rows.length === 1 ? 16 : clamp(4, Math.floor(room), 20)}px`);
    };
    return {fit, draw() {}, changed(row, column, p) {
      const seat = row.seats[column - 1];
      seat.dataset.state = names[row.states[column - 1]];
      seat.title = `${apart(p.label)}: ${p.state}${p.user_id ? `, ${apart(p.user_id)}` : ""}${p.prize ? `, prize ${p.prize}` : ""}`;
    }};
  }

  // canvas draws lines: a row each, or parts of the only row.
  function canvas(picture, board) {
    const surface = make("canvas", ""), context = surface.getContext("2d"), dirty = new Set();
    let cell, height, scale, left, per, lines, colours;
    picture.append(surface);
    const fit = () => {
      const width = picture.clientWidth, only = board.rows.length === 1, named = board.named && !only && board.rows.length <= 200;
      scale = Math.min(window.devicePixelRatio || 1, 2);
      left = named ? labelWidth : 0;
      const snap = (n) => n * scale < 1 ? n : Math.floor(n * scale) / scale; // to whole pixels
      cell = snap(only ? clamp(1 / scale, Math.sqrt(width * highest / board.total), 12) : Math.min(12, (width - left) / board.widest));
      per = only ? Math.floor(width / cell) : Infinity;
      height = cell * scale < 1 ? snap(clamp(1, highest / board.rows.length, 14)) : named ? Math.max(cell, 12) : cell;
      lines = board.rows.flatMap((row) => Array.from({length: Math.ceil(row.total / Math.min(per, row.total))}, (_, i) => ({row, from: i * per || 0, to: Math.min(row.total, (i + 1) * per)})));
      lines.forEach((line, i) => { if (line.from === 0) line.row.line = i; });
      surface.width = width * scale;
      surface.height = Math.ceil(lines.length * height * scale);
      surface.style.height = `${lines.length * height}px`;
      const style = getComputedStyle(picture);
      colours = [...names, "text"].map((name) => style.getPropertyValue(`--${name}`));
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.textBaseline = "middle";
      lines.forEach((_, i) => dirty.add(i));
    };
    // runsOf are the positions of a line that look the same, as [state, how many, whether an aisle follows].
    const runsOf = ({row, from, to}) => {
      if (cell * scale < 1) {
        const shares = new Array(names.length).fill(0);
        for (const state of row.states) shares[state]++;
        return inBars.map((state) => [state, shares[state], false]);
      }
      const runs = [];
      for (let at = from, next; at < to; at = next) {
        next = at + 1;
        if (cell < 4) while (next < to && row.states[next] === row.states[at] && !row.aisles.has(next)) next++;
        runs.push([row.states[at], next - at, row.aisles.has(next)]);
      }
      return runs;
    };
    const draw = () => {
      for (const i of dirty) {
        const {row} = lines[i], y = i * height, gap = cell < 4 ? 0 : 1;
        context.clearRect(0, y, surface.width, height);
        context.fillStyle = colours[names.length];
        if (left) context.fillText(row.label, 0, y + height / 2, left - 8);
        let x = board.triangle ? (picture.clientWidth - row.total * cell) / 2 : left;
        for (const [state, n, aisle] of runsOf(lines[i])) {
          context.fillStyle = colours[state];
          context.fillRect(x, y, n * cell - gap, height - (height < 4 ? 0 : 1));
          x += (n + (aisle ? 1 : 0)) * cell;
        }
      }
      dirty.clear();
    };
    return {fit, draw, changed(row, column) { dirty.add(row.line + Math.floor((column - 1) / per)); }};
  }

  function open(figure) {
    const rows = rowsOf(), board = {rows, total: rows.reduce((sum, {total}) => sum + total, 0), widest: Math.max(1, ...rows.map(({total, aisles}) => total + aisles.size)),
      named: rows.some(({label}) => label), triangle: figure.dataset.shape === "triangle"};
    const picture = make("div", ""), legend = document.createElement("figcaption"), counts = [board.total, 0, 0, 0, 0, 0];
    picture.className = "picture";
    picture.setAttribute("role", "img");
    figure.replaceChildren(legend, picture);
    const shape = (board.total <= mostElements ? elements : canvas)(picture, board);
    const show = () => {
      legend.replaceChildren(...names.map((state, i) => make("span", `${counts[i].toLocaleString("en")} ${state}`, {state})));
      picture.setAttribute("aria-label", `${board.total} positions in ${rows.length} layers: ${names.map((state, i) => `${counts[i]} ${state}`).join(", ")}. The table has the counts of each layer.`);
      shape.draw();
    };
    const fit = () => { shape.fit(); shape.draw(); };
    let width = 0; // a picture that is only put in again has the same
    new ResizeObserver(() => requestAnimationFrame(() => { if (picture.clientWidth && width !== (width = picture.clientWidth)) fit(); })).observe(picture);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
    shape.fit();
    show();
    return {figure, version: 0, isWhole: false, apply({board_version: version, since, positions}) {
      for (const p of positions) {
        const row = rows[p.layer - 1];
        if (!row || p.column > row.total) continue;
        counts[row.states[p.column - 1]]--;
        counts[row.states[p.column - 1] = codeOf(p)]++;
        shape.changed(row, p.column, p);
      }
      this.version = version;
      this.isWhole ||= since === null && positions.length > 0;
      figure.dataset.version = version;
      if (positions.length > 0) show();
    }};
  }

  let shown = null, timer = 0;
  async function follow() {
    clearTimeout(timer);
    timer = NaN; // until the answer is here
    const figure = document.getElementById("board"); // there is none before the campaign is published
    if (figure && figure !== shown?.figure) shown = open(figure);
    // Version 0 stands for no version: while nothing is taken, nothing has changed.
    const {final, taken} = document.getElementById("layers").dataset;
    const isIdle = shown?.isWhole && (shown.version === 0 && !taken || shown.isFinal);
    if (shown && !isIdle && !document.hidden) {
      try {
        const answer = await fetch(`${shown.figure.dataset.from}?since=${shown.version}`, {signal: AbortSignal.timeout(12000), headers: {"HX-Request": "true"}}); // as a poll it keeps no session alive
        if (answer.status === 409) shown.version = 0; // the server has been restored to an older state
        else if (answer.ok) {
          shown.apply(await answer.json());
          shown.isFinal = Boolean(final); // what was read after the end stays
        }
      } catch { /* the api does not answer, as the page says */ }
    }
    timer = setTimeout(follow, 2000);
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && timer > 0) follow(); });
  follow();
})();
