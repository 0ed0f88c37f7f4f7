// Keeps a page live: the server sends the HTML of the elements that changed, and they replace those that are shown.
"use strict";

const events = document.body.dataset.events;
const live = document.getElementById("live");
const button = document.getElementById("pause");
let source = null;

// replace puts new attributes and content into an element. The element stays: a live region is read aloud only if it was there before.
function replace(id, html) {
  const old = document.getElementById(id);
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.firstElementChild;
  if (!old || !fresh || old.outerHTML === fresh.outerHTML) return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const href = focused && focused.getAttribute("href");
  for (const { name, value } of fresh.attributes) old.setAttribute(name, value);
  old.replaceChildren(...fresh.childNodes);
  if (href) {
    const again = [...old.querySelectorAll("a")].find((a) => a.getAttribute("href") === href);
    if (again) again.focus({ preventScroll: true });
  }
  if (id === "verdict" && old.dataset.title) document.title = old.dataset.title;
}

function start() {
  source = new EventSource(events);
  live.textContent = "Live,";
  button.textContent = "Pause";
  source.onmessage = (e) => {
    live.textContent = "Live,";
    for (const [id, html] of Object.entries(JSON.parse(e.data))) replace(id, html);
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) {
      stop("Too many viewers: reload by hand. As of");
    } else {
      live.textContent = "Connection lost, trying again. As of";
    }
  };
}

function stop(why) {
  source.close();
  source = null;
  live.textContent = why;
  button.textContent = "Go live";
}

if (events) {
  button.hidden = false;
  button.addEventListener("click", () => (source ? stop("Paused at") : start()));
  addEventListener("pagehide", () => source && stop("As of"));
  addEventListener("pageshow", (e) => e.persisted && start());
  start();
}
