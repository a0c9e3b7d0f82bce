// The page of a campaign: it asks for what has changed every few seconds, and writes times, numbers and amounts as
// its reader does.
"use strict";
(() => {
  const live = document.getElementById("live"), away = document.getElementById("away"), language = document.documentElement.lang;
  // The reader's region, if it is one of this language; some browsers name what is none.
  const locale = navigator.languages.find((name) => { try { return new Intl.Locale(name).language === language; } catch { return false; } }) ?? language;
  const whole = new Intl.DateTimeFormat(locale, {year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short"});
  const span = new Intl.RelativeTimeFormat(locale, {numeric: "auto"});
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  let shown = "", chosenSince = 0, ahead = 0; // of the server's clock, in ms

  // leftUntil says how much time is left, in the largest unit of which there are two.
  function leftUntil(at) {
    const seconds = Math.round((at - Date.now() - ahead) / 1000), [unit, size] = units.find(([, size]) => Math.abs(seconds) >= 2 * size) ?? units[3];
    return span.format(Math.round(seconds / size), unit);
  }
  function tick() {
    for (const time of live.querySelectorAll("time[data-left]")) {
      const at = new Date(time.dateTime), text = `${whole.format(at)} (${leftUntil(at)})`;
      if (time.textContent !== text) time.textContent = text;
    }
  }
  function write() {
    for (const time of live.querySelectorAll("time:not([data-left])")) time.textContent = whole.format(new Date(time.dateTime));
    for (const data of live.querySelectorAll("data")) {
      const {value} = data, {currency} = data.dataset, digits = (value.split(".")[1] ?? "").length; // those of its minor unit
      data.textContent = new Intl.NumberFormat(locale, currency ? {style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits} : {}).format(value);
    }
    tick();
  }
  // show puts in what has come. The focus and the place of a table stay; so does, for half a minute, what somebody has
  // selected, to copy it.
  function show(html) {
    const chosen = getSelection();
    chosenSince = !chosen.isCollapsed && chosen.containsNode(live, true) ? chosenSince || Date.now() : 0;
    if (html === shown || chosenSince && Date.now() - chosenSince < 30000) return;
    shown = html;
    const focused = document.activeElement?.id, scrolled = [...live.querySelectorAll("table")].map((table) => table.scrollLeft);
    live.innerHTML = html;
    write();
    live.querySelectorAll("table").forEach((table, i) => { table.scrollLeft = scrolled[i] ?? 0; });
    if (focused && live.querySelector(`#${CSS.escape(focused)}`)) document.getElementById(focused).focus({preventScroll: true});
  }
  const say = (text) => { if (away.textContent !== text) away.textContent = text; };
  let timer = 0;
  async function follow() {
    clearTimeout(timer);
    timer = 0;
    let pause = 2000 + Math.random() * 1000; // a crowd that came together does not ask together
    try {
      const answer = await fetch(live.dataset.from, {signal: AbortSignal.timeout?.(12000)});
      if (answer.status === 404) return setTimeout(() => location.reload(), 5000); // the page says why
      if (!answer.ok) throw new Error(answer.statusText);
      ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
      show(await answer.text());
      say("");
    } catch {
      say(away.dataset.text);
      pause = 5000;
    }
    if (!document.getElementById("campaign")?.hasAttribute("data-final") || away.textContent) timer = setTimeout(() => document.hidden || follow(), pause);
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && timer) follow(); });
  write();
  setInterval(tick, 1000);
  follow();
})();
