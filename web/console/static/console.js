// What every page does: it says when the api does not answer, and leaves what an operator does just now in its place.
"use strict";
(() => {
  const away = document.getElementById("away");
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
})();
