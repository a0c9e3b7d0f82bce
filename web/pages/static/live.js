// The page of a campaign: it asks for what has changed every few seconds, and writes times, numbers and amounts as
// its reader does.
"use strict";
(() => {
  const live = document.getElementById("live"), away = document.getElementById("away"), language = document.documentElement.lang;
  // The reader's region, if it is one of this language; some browsers name what is none.
  const locale = navigator.languages.find((name) => { try { return new Intl.Locale(name).language === language; } catch { return false; } }) ?? language;
  const whole = new Intl.DateTimeFormat(locale, {year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short"});
  const span = new Intl.RelativeTimeFormat(locale, {numeric: "always"});
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  let ahead = Date.parse(live.dataset.at) - Date.now(); // of the server's clock, in ms; an answer says it better

  // leftUntil says how much time is left, in the largest unit of which there are two.
  function leftUntil(at) {
    const seconds = Math.round((at - Date.now() - ahead) / 1000), [unit, size] = units.find(([, size]) => Math.abs(seconds) >= 2 * size) ?? units[3];
    return span.format(Math.round(seconds / size), unit);
  }
  function tick(part) {
    for (const time of part.querySelectorAll("time[data-left]")) {
      const at = new Date(time.dateTime), text = `${whole.format(at)} (${leftUntil(at)})`;
      if (time.textContent !== text) time.textContent = text;
    }
  }
  function write(part) {
    for (const time of part.querySelectorAll("time:not([data-left])")) time.textContent = whole.format(new Date(time.dateTime));
    for (const data of part.querySelectorAll("data")) {
      const {value} = data, {currency} = data.dataset, digits = (value.split(".")[1] ?? "").length; // those of its minor unit
      data.textContent = new Intl.NumberFormat(locale, currency ? {style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits} : {}).format(value);
    }
    tick(part);
  }
  // change makes a part of the page equal to another one. What is there stays: so does the focus in it, a selection,
  // and where somebody reads.
  function change(part, next) {
    if (part.isEqualNode(next)) return;
    if (part.nodeType === Node.TEXT_NODE) return void (part.data = next.data);
    for (const name of part.getAttributeNames()) if (!next.hasAttribute(name)) part.removeAttribute(name);
    for (const {name, value} of next.attributes) if (part.getAttribute(name) !== value) part.setAttribute(name, value);
    const old = [...part.childNodes], now = [...next.childNodes];
    let rest = null;
    while (old.length && now.length && old[0].isEqualNode(now[0])) old.shift(), now.shift();
    while (old.length && now.length && old.at(-1).nodeName === now.at(-1).nodeName) change(rest = old.pop(), now.pop());
    for (const child of old) child.remove();
    for (const child of now) part.insertBefore(child, rest);
  }
  function show(html) {
    const next = live.cloneNode(false);
    next.innerHTML = html;
    write(next);
    change(live, next);
  }
  const say = (text) => { if (away.textContent !== text) away.textContent = text; };
  let timer = 0;
  async function follow() {
    clearTimeout(timer);
    timer = 0;
    let pause = 2000 + Math.random() * 1000; // a crowd that came together does not ask together
    try {
      const answer = await fetch(live.dataset.from, {signal: AbortSignal.timeout?.(12000)});
      if (answer.status === 404) return setTimeout(() => location.reload(), 3000 + pause); // the page says why
      if (!answer.ok) throw new Error(answer.statusText);
      ahead = Date.parse(answer.headers.get("Date")) - Date.now() || ahead;
      show(await answer.text());
      say("");
    } catch {
      say(away.dataset.text);
      pause *= 2;
    }
    if (!document.getElementById("campaign")?.hasAttribute("data-final") || away.textContent) timer = setTimeout(() => document.hidden || follow(), pause);
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && timer) follow(); });
  write(live);
  setInterval(() => tick(live), 1000);
  follow();
})();
