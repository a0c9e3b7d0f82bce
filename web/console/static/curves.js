// The curves of the page Now. They are read and drawn anew after a poll of the page, at most every ten seconds.
"use strict";
(() => {
  const room = document.getElementById("curves"), names = ["Purchases a second", "Refusals a second", "p99 until final, milliseconds", "Backlog of jobs and webhook events"];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name), axis = () => ({ stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 } });
  const text = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  let data = [], readAt = 0;
  const draw = () => room.replaceChildren(...data.slice(1).map((values, i) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), picture = document.createElement("div"), known = values.filter((value) => value !== null);
    caption.textContent = `${names[i]}: ` + (known.length ? `last ${values.at(-1) === null ? "not known" : text(values.at(-1))}, least ${text(Math.min(...known))}, greatest ${text(Math.max(...known))}` : "not known yet");
    picture.setAttribute("aria-hidden", "true"); // the caption says it in words
    new uPlot({ width: Math.min(room.clientWidth, 560), height: 170, legend: { show: false }, cursor: { show: false },
      axes: [{ ...axis(), values: (plot, times) => times.map((at) => new Date(1000 * at).toISOString().slice(11, 19)) }, axis()],
      scales: { y: { range: (plot, least, greatest) => [0, Math.max(1, greatest)] } }, series: [{}, { stroke: color("--link"), width: 2 }] }, [data[0], values], picture);
    figure.append(caption, picture);
    return figure;
  }));
  const read = async () => {
    if (Date.now() - readAt < 10000) return;
    readAt = Date.now();
    const answer = await fetch("/console/now/curves", { signal: AbortSignal.timeout(12000), headers: { "HX-Request": "true" } }).catch(() => ({ ok: false }));
    const samples = answer.ok && await answer.json(); // null: none is taken yet
    if (samples) data = samples[0].map((_, i) => samples.map((sample) => sample[i]));
    if (samples) draw();
  };
  document.body.addEventListener("htmx:afterRequest", read);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", draw);
  read();
})();
