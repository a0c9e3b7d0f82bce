// What every page does: it says when the api does not answer, and how long ago a time was.
"use strict";
(() => {
  const away = document.getElementById("away");
  const ago = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = Math.round((Date.now() - Date.parse(time.dateTime)) / 1000);
      const [n, unit] = Math.abs(seconds) < 90 ? [seconds, "second"] : Math.abs(seconds) < 5400 ? [Math.round(seconds / 60), "minute"]
        : Math.abs(seconds) < 172800 ? [Math.round(seconds / 3600), "hour"] : [Math.round(seconds / 86400), "day"];
      time.title = new Intl.RelativeTimeFormat("en").format(-n, unit);
    }
  };
  document.body.addEventListener("htmx:afterSwap", ago);
  document.body.addEventListener("htmx:afterRequest", (event) => { away.hidden = event.detail.successful || event.detail.xhr.status === 401; });
  let isDown = false, focused = "", scrolled = [];
  addEventListener("pointerdown", () => { isDown = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { isDown = false; });
  const tables = () => [...document.querySelectorAll("#live table")];
  document.body.addEventListener("htmx:beforeSwap", ({detail}) => { // what has not changed stays, and what is clicked or selected now
    const {xhr, target, serverResponse} = detail, tag = xhr.getResponseHeader("ETag");
    if (xhr.status === 304 || tag === target.dataset.tag || isDown || !getSelection().isCollapsed) detail.shouldSwap = false;
    if (!detail.shouldSwap) return;
    target.dataset.tag = tag ?? "";
    focused = document.activeElement?.getAttribute("href");
    scrolled = tables().map((table) => table.scrollLeft);
  });
  document.body.addEventListener("htmx:afterSettle", () => {
    tables().forEach((table, i) => { table.scrollLeft = scrolled[i] ?? 0; });
    if (focused && document.activeElement === document.body) document.querySelector(`#live [href="${CSS.escape(focused)}"]`)?.focus();
  });
  // A form that is filled in keeps its session.
  document.body.addEventListener("change", () => fetch(location.href, {method: "HEAD"}).catch(() => {}));
  ago();
})();
