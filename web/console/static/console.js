// What every page does: it says when the api does not answer, and leaves what an operator does just now in its place.
"use strict";
(() => {
  const away = document.getElementById("away"), all = (what) => [...document.querySelectorAll(`#live ${what}`)], tables = () => all("table");
  const isRefused = (xhr) => xhr.status >= 400 && xhr.status < 500;
  let isDown = false, heldSince = 0, href = "", focused = -1, scrolled = [], opened = [];
  addEventListener("pointerdown", () => { isDown = true; });
  for (const end of ["pointerup", "pointercancel", "contextmenu", "dragend"]) addEventListener(end, () => { isDown = false; });
  // What is clicked or selected stays for half a minute at most: then what happens is more important.
  const isHeld = (target) => {
    const chosen = getSelection(), is = isDown || !chosen.isCollapsed && chosen.containsNode(target, true);
    heldSince = is ? heldSince || Date.now() : 0;
    return is && Date.now() - heldSince < 30000;
  };
  document.body.addEventListener("htmx:afterRequest", ({detail}) => { away.hidden = detail.successful || isRefused(detail.xhr); });
  document.body.addEventListener("htmx:beforeSwap", ({detail}) => {
    const {xhr, target} = detail, tag = xhr.getResponseHeader("ETag") ?? "";
    if (isRefused(xhr) && xhr.status !== 401) Object.assign(detail, {shouldSwap: true, isError: false}); // it is said where the content was
    if (isHeld(target) || xhr.status === 304 || tag && tag === target.dataset.tag) detail.shouldSwap = false;
    if (!detail.shouldSwap) return;
    target.dataset.tag = tag;
    href = document.activeElement?.getAttribute("href");
    focused = tables().indexOf(document.activeElement);
    scrolled = tables().map((table) => table.scrollLeft);
    opened = all("details").map((part) => part.open);
  });
  document.body.addEventListener("htmx:afterSettle", () => {
    all("details").forEach((part, i) => { part.open = opened[i] ?? false; });
    tables().forEach((table, i) => { table.scrollLeft = scrolled[i] ?? 0; });
    if (document.activeElement !== document.body) return;
    if (focused >= 0) tables()[focused]?.focus({preventScroll: true});
    else if (href) document.querySelector(`#live [href="${CSS.escape(href)}"]`)?.focus({preventScroll: true});
  });
  // How long ago, or when, beside each time: by the clock of the server, which the page and each answer say.
  const span = new Intl.RelativeTimeFormat("en"), units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  let ahead = Date.parse(document.body.dataset.at) - Date.now();
  function tick() {
    for (const time of document.querySelectorAll("time")) {
      const seconds = Math.round((new Date(time.dateTime) - Date.now() - ahead) / 1000), [unit, size] = units.find(([, size]) => Math.abs(seconds) >= 2 * size) ?? units[3];
      const text = span.format(Math.round(seconds / size), unit);
      if (time.dataset.ago !== text) time.dataset.ago = text;
    }
  }
  document.body.addEventListener("htmx:afterRequest", ({detail}) => { ahead = Date.parse(detail.xhr.getResponseHeader("Date")) - Date.now() || ahead; });
  document.body.addEventListener("htmx:afterSettle", tick);
  setInterval(tick, 1000);
  tick();
  // A form that is filled in keeps its session.
  document.body.addEventListener("change", () => fetch(document.querySelector("main form.action[method=post]")?.action ?? location.href, {method: "HEAD"}).catch(() => {}));
})();
