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
  document.body.addEventListener("htmx:beforeSwap", ({detail}) => { // what has not changed stays, with its focus and what is open
    if (detail.xhr.status === 304 || detail.serverResponse === detail.target.shown) detail.shouldSwap = false;
    else if (detail.shouldSwap) detail.target.shown = detail.serverResponse;
  });
  ago();
})();
