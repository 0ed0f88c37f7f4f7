// The page: it shows the state of a Machine, keeps what was done, and plays lessons.
"use strict";

const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name.startsWith("on") ? e.addEventListener(name.slice(2), value) : e.setAttribute(name, value);
  e.append(...children);
  return e;
};
const button = (text, action, attributes = {}) => make("button", { type: "button", onclick: action, ...attributes }, text);

let program, machine, lesson, step, told, running = null, guess = null;
let done = []; // what was done: orders, and a time that passed. Undo replays all but the last.
let facts = []; // of the step that is played
let playing = null; // the play that is under way; whoever sets it to null ends that play
let busy = Promise.resolve();

// inTurn runs one thing after the other: a machine takes one tick at a time.
const inTurn = (f) => (busy = busy.then(f).catch((err) => say("bad", "", String(err))));

async function restart(history) {
  $("lines").replaceChildren();
  machine = await Machine.start(program, lesson.nodes, (l) => sayLog(l));
  done = [];
  edited.clear(); // these were changes of records of another world
  if (writes()) document.activeElement.blur(); // or the registry would stay as it was
  for (const [orders, ms] of lesson.setup) await machine.advance(orders, ms);
  for (const h of history) await advance(h.orders, h.ms, true);
  show();
}

// note adds to a history. Times that pass without orders between them are one step of it.
function note(history, orders, ms) {
  const last = history.at(-1);
  if (last && orders.length === 0) last.ms += ms;
  else history.push({ orders, ms });
  return history;
}

// advance moves the world.
async function advance(orders, ms, quiet = false) {
  note(done, orders, ms);
  const state = await machine.advance(orders, ms);
  for (const e of state.events) say(e.kind === "error" ? "bad" : e.kind === "client" ? "good" : "", e.at, e.text);
  if (!quiet) show();
  return state;
}

function begin(l) {
  pause();
  lesson = l; step = 0; facts = []; guess = null; told = ""; playing = null;
  inTurn(() => restart([]));
}

// play plays a step: each part at its instant, with its facts. These hold in one world only, which the steps before it have made. So if
// anything else was done, the world is made anew.
function play() {
  if (playing) return;
  pause();
  const mine = playing = {}, steps = lesson.steps.slice(0, step), now = lesson.steps[step];
  const ended = () => playing !== mine; // by another lesson, or by Undo
  facts = [];
  showLesson();
  inTurn(async () => {
    if (ended()) return;
    const before = steps.flatMap((x) => x.play).reduce((history, part) => note(history, part.do, part.wait), []);
    if (JSON.stringify(done) !== JSON.stringify(before)) {
      await restart(before);
      say("wait", "", "This step begins where the step before it ends. What else was done is undone.");
    }
    for (const part of now.play) {
      if (ended()) return;
      let state = await advance(part.do, 0);
      for (let left = part.wait; left > 0;) { // in a few pictures
        if (ended()) return;
        const ms = Math.min(left, Math.max(1, Math.ceil(part.wait / 12)));
        state = await advance([], ms);
        left -= ms;
        if (!matchMedia("(prefers-reduced-motion: reduce)").matches) await new Promise((r) => setTimeout(r, 40));
      }
      if (ended()) return;
      for (const f of part.facts) facts.push({ at: state.now, text: f.text, holds: f.holds(state) });
    }
    told = "played";
    playing = null;
    show();
    $("explained")?.focus();
  }).then(() => { if (!ended()) { playing = null; showLesson(); } }); // it has failed
}

function pause() {
  clearInterval(running);
  running = null;
  $("run").textContent = "Run";
  $("run").setAttribute("aria-pressed", "false");
}

function say(kind, at, ...parts) {
  const lines = $("lines");
  lines.append(make("li", { class: kind }, at === "" ? "" : at.toFixed(0) + " ms  ", ...parts));
  while (lines.childElementCount > 500) lines.firstChild.remove();
  lines.scrollTop = lines.scrollHeight;
}

function sayLog(l) {
  if (!l.file) return say("bad log", "", l.text);
  say("log" + (l.level === "I" ? "" : " wait"), l.at, ...places(l.file, l.line).map((p) => button(l.file + ":" + l.line, () => open(p, l.line), { title: p })), l.text);
}

// places are the files that have this name and write to the log at this line: one, nearly always.
const places = (name, line) => Object.keys(SOURCES).filter((p) => p.endsWith("/" + name) && /glog\.|infof|logf|Printf/i.test((SOURCES[p].split("\n")[line - 1] || "")));

function open(path, line) {
  const text = SOURCES[path].split("\n"), pre = $("source-text");
  $("source-title").textContent = path + ":" + line;
  pre.replaceChildren(text.slice(0, line - 1).join("\n") + "\n", make("mark", {}, text[line - 1]), text.slice(line).join("\n"));
  $("source").showModal();
  pre.querySelector("mark").scrollIntoView({ block: "center" });
}

// While a button is pressed nothing is drawn. A browser makes a click only of a press and a release on one element, and drawing replaces elements.
const pressed = new Set(); // "pointer", "Space"
let stale = false; // something was not drawn
const release = (what) => { if (pressed.delete(what)) drawLater(); };
const drawLater = () => setTimeout(() => inTurn(() => { if (stale) show(); })); // after the click, which comes after the release
const isControl = (e) => e.target instanceof Element && e.target.closest("button, label, input, summary");
addEventListener("pointerdown", (e) => { if (e.button === 0 && isControl(e)) pressed.add("pointer"); }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => release("pointer"), true);
addEventListener("keydown", (e) => { if (e.key === " " && isControl(e)) pressed.add("Space"); }, true);
addEventListener("keyup", (e) => { if (e.key === " ") release("Space"); }, true);
addEventListener("blur", () => { release("pointer"); release("Space"); }); // the release goes to another window

function show() {
  stale = pressed.size > 0;
  if (stale) return;
  const s = machine.state;
  $("clock").textContent = "t = " + s.now.toLocaleString("en", { maximumFractionDigits: 3 }) + " ms";
  $("undo").disabled = done.length === 0;
  showLesson();
  draw(s);
  showHosts(s);
  showClients(s);
  showNodes(s);
  showRegistry(s);
}

let shown = ""; // what of the lesson is drawn: it stays as it is while time runs
function showLesson() {
  const showing = JSON.stringify([lesson.id, step, guess, facts, told, playing]);
  if (showing === shown) return;
  shown = showing;
  for (const b of $("lessons").children) b.setAttribute("aria-current", b.textContent.endsWith(lesson.title));
  const now = lesson.steps[step], box = $("lesson");
  const had = document.activeElement?.name === "guess";
  const choices = make("fieldset", {}, make("legend", {}, now.question), ...now.choices.map((c, i) =>
    make("label", {}, make("input", { type: "radio", name: "guess", value: i, ...(guess === i ? { checked: "" } : {}), onchange: () => { guess = i; showLesson(); } }), " " + c, make("br"))));
  box.replaceChildren(make("h2", { id: "title" }, `${LESSONS.indexOf(lesson) + 1}. ${lesson.title}`), make("p", {}, lesson.intro), make("p", {}, `Step ${step + 1} of ${lesson.steps.length}. Predict, then play.`), choices);
  const start = button("Play", play, { id: "play" });
  start.disabled = guess === null || told === "played" || playing !== null;
  box.append(start);
  if (facts.length) box.append(make("ul", { class: "facts" }, ...facts.map((f) => make("li", { class: f.holds ? "good" : "bad" }, `${f.holds ? "✓" : "✗ not so:"} ${f.text} (t = ${f.at} ms)`))));
  if (told === "played") {
    box.append(make("p", { id: "explained", tabindex: "-1" }, make("strong", {}, guess === now.right ? "As you predicted. " : `You predicted: ${now.choices[guess]}. `), now.explain));
    box.append(make("p", { class: "sources" }, "In the source: ", ...now.source.map(([path, mark]) => button(path, () => open(path, SOURCES[path].split("\n").findIndex((l) => l.includes(mark)) + 1))))); 
    if (step + 1 < lesson.steps.length) box.append(button("Next step", () => { step++; facts = []; guess = null; told = ""; show(); $("lesson").focus(); }, { id: "next" }));
    else box.append(make("p", {}, make("strong", {}, "Try: "), lesson.tryIt));
  }
  if (had) box.querySelector(`input[value="${guess}"]`)?.focus();
}

function draw(s) {
  const height = 60 + 60 * Math.max(s.hosts.length, s.nodes.length), svg = [];
  const hostAt = (i) => 30 + i * 60, nodeAt = (i) => 30 + (i + 0.5) * (height - 40) / s.nodes.length - 20;
  s.nodes.forEach((n, i) => {
    const y = nodeAt(i);
    n.sessions.forEach((x, k) => {
      const h = s.hosts.findIndex((z) => x.endpoint.startsWith(z.addr + ":")), cy = 14 + (k % 16) * 17;
      const kind = x.protocol === "udp" ? "udp" : x.endpoint ? "" : "waits";
      svg.push(`<line class="${kind}" x1="112" y1="${cy}" x2="220" y2="${y + 20}"/><text x="2" y="${cy + 4}">${x.client}</text>`);
      if (h >= 0) svg.push(`<line class="${kind}" x1="330" y1="${y + 20}" x2="450" y2="${hostAt(h) + 20}"/>`);
      else s.hosts.forEach((z, j) => { if (z.state === "silent" && n.rotations.some((r) => r.service === x.service && r.endpoints.some((e) => e.addr.startsWith(z.addr + ":")))) svg.push(`<line class="waits" x1="330" y1="${y + 20}" x2="450" y2="${hostAt(j) + 20}"/>`); });
    });
    svg.push(`<rect x="220" y="${y}" width="110" height="44" rx="4"/><text x="226" y="${y + 17}">${n.name} ${n.addr}</text><text x="226" y="${y + 34}">${n.ports.map((p) => ":" + p.port + " " + p.owner).join(", ").slice(0, 24).replace(/</g, "")}</text>`);
  });
  s.hosts.forEach((h, i) => {
    const out = Math.max(0, ...s.nodes.flatMap((n) => n.rotations.flatMap((r) => r.endpoints.filter((e) => e.addr.startsWith(h.addr + ":")).map((e) => e.ejected))));
    svg.push(`<rect class="${h.state}" x="450" y="${hostAt(i)}" width="140" height="44" rx="4"/><text x="456" y="${hostAt(i) + 17}">${h.name} ${h.addr}</text><text x="456" y="${hostAt(i) + 34}">${h.state}, served ${h.served}${out ? ", out " + (out / 1000).toFixed(1) + " s" : ""}</text>`);
  });
  $("picture").setAttribute("viewBox", `0 0 600 ${height}`);
  $("picture").innerHTML = svg.join("");
}

const keepFocus = (box, ...children) => { // a redraw does not take the focus away, nor the caret
  const { id, selectionStart: from, selectionEnd: to } = box.contains(document.activeElement) ? document.activeElement : {};
  box.replaceChildren(...children);
  if (!id || !$(id)) return;
  $(id).focus({ preventScroll: true });
  if (typeof from === "number") $(id).setSelectionRange(from, to);
};

function showHosts(s) {
  keepFocus($("hosts"), make("h2", {}, "Endpoints"), make("table", {}, ...s.hosts.map((h) => make("tr", {}, make("th", {}, h.name), make("td", {}, ...["up", "refuses", "silent", "slow"].map((state) =>
    button(state, () => inTurn(() => advance([{ do: "host", host: h.name, state }], 0)), { id: `host-${h.name}-${state}`, "aria-pressed": String(h.state === state), "aria-label": `${h.name} ${state}` })))))));
}

let asked = { node: "1", port: "8000", hold: "300", client: "A" };
function showClients(s) {
  const field = (label, name, attributes) => make("label", {}, label + " ", make("input", { id: "ask-" + name, size: 5, value: asked[name], oninput: (e) => { asked[name] = e.target.value; }, ...attributes }), " ");
  const tcp = (n) => inTurn(() => advance(Array(n).fill({ do: "tcp", node: Number(asked.node), port: Number(asked.port), hold: Number(asked.hold) }), 0));
  keepFocus($("clients"), make("h2", {}, "Clients"), make("p", {}, field("node", "node"), field("port", "port"), field("stays, ms", "hold"), button("One TCP client", () => tcp(1), { id: "tcp-1" }), button("Six", () => tcp(6), { id: "tcp-6" }), make("br"),
    field("client", "client"), button("A datagram", () => inTurn(() => advance([{ do: "udp", node: Number(asked.node), port: Number(asked.port), client: asked.client }], 0)), { id: "udp-1" })),
    make("table", {}, ...s.clients.slice(-8).map((c) => make("tr", {}, make("th", {}, `${c.protocol} ${c.name}`), make("td", { class: { waits: "wait", refused: "bad" }[c.state] || "good" }, `${c.node} port ${c.port}: ${c.state}${c.answers.length ? ", answered by " + c.answers.slice(-5).join(", ") : ""}${c.state === "waits" ? "" : `, ${c.took} ms`}`)))));
}

function showNodes(s) {
  $("nodes").replaceChildren(...s.nodes.map((n) => make("div", {}, make("h2", {}, `What ${n.name} knows`),
    n.connected ? "" : make("p", { class: "bad" }, `The registry does not answer for ${(n.away / 1000).toFixed(1)} s. Revision ${n.revision} stays in force.`),
    ...n.rejected.map((r) => make("p", { class: "bad" }, `${r.key}: ${r.reason}`)), ...n.warned.map((r) => make("p", { class: "wait" }, `${r.key}: ${r.reason}`)),
    make("table", {}, ...n.ports.map((p) => make("tr", {}, make("th", {}, `${p.protocol} ${p.port}${p.address ? " of " + p.address : ""}`), make("td", {}, p.owner ? `owner ${p.owner}` : "no owner", p.waiting.length ? `; then ${p.waiting.join(", ")}` : "", p.problem ? make("span", { class: "bad" }, " " + p.problem) : "")))),
    make("table", {}, ...n.rotations.flatMap((r) => r.endpoints.map((e, i) => make("tr", {}, make("th", {}, i ? "" : r.service), make("td", {}, i === r.next ? "next ▶" : ""), make("td", {}, e.addr), make("td", {}, `${e.active} now, ${e.clients} in all`), make("td", { class: e.ejected ? "bad" : "" }, e.ejected ? `ejected for ${(e.ejected / 1000).toFixed(3)} s` : e.failures ? `${e.failures} failures` : ""))))),
    make("table", {}, ...n.sessions.filter((x) => x.protocol === "udp").map((x) => make("tr", {}, make("th", {}, "session"), make("td", {}, `${x.client} → ${x.endpoint || "…"}, silent for ${(x.idle / 1000).toFixed(3)} s`)))))));
}

const edited = new Map(); // key → text that was not written yet
const writes = () => $("registry").contains(document.activeElement) && ["TEXTAREA", "INPUT"].includes(document.activeElement.tagName);
const writeKey = (key, value) => inTurn(() => { edited.delete(key); return advance([{ do: "write", records: [{ key, value }] }], 0); });
const newKey = make("input", { class: "key", "aria-label": "key of a new record", value: "/registry/services/specs/" });
const newRecord = make("details", {}, make("summary", { id: "new-record" }, "A new record"), newKey, button("Add", () => writeKey(newKey.value, "{}"), { id: "add" })); // made once: it stays open
$("registry").addEventListener("focusout", drawLater);

function showRegistry(s) {
  stale = writes();
  if (stale) return; // somebody writes, and a new field would have no caret
  for (const [key, text] of edited) if (!s.store.keys.some((k) => k.key === key && k.value !== text)) edited.delete(key);
  keepFocus($("registry"), make("h2", {}, `Registry, revision ${s.store.revision}`), make("p", {}, ...["up", "away"].map((state) => button(state, () => inTurn(() => advance([{ do: "store", state }], 0)), { id: "store-" + state, "aria-pressed": String(s.store.state === state) }))),
    ...s.store.keys.map((k) => {
      const area = make("textarea", { rows: 3, id: "record-" + k.key, "aria-label": "record " + k.key, spellcheck: "false", oninput: () => { edited.set(k.key, area.value); unwritten.hidden = false; } });
      area.value = edited.get(k.key) ?? k.value;
      const unwritten = make("p", { class: "wait" }, `Not written. The registry has ${k.value}`);
      unwritten.hidden = !edited.has(k.key);
      const problem = s.nodes[0].rejected.find((r) => r.key === k.key);
      return make("div", {}, make("code", {}, k.key), area, unwritten, problem ? make("p", { class: "bad" }, problem.reason) : "",
        button("Write", () => writeKey(k.key, area.value), { id: "write-" + k.key }), button("Delete", () => writeKey(k.key, null), { id: "delete-" + k.key }));
    }), newRecord);
}

async function load() {
  const bytes = Uint8Array.from(atob(PROGRAM), (c) => c.charCodeAt(0));
  program = await WebAssembly.compile(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  LESSONS.forEach((l, i) => $("lessons").append(button(`${i + 1}. ${l.title}`, () => { location.hash = l.id; })));
  for (const b of document.querySelectorAll("[data-pass]")) b.addEventListener("click", () => inTurn(() => advance([], Number(b.dataset.pass))));
  $("run").addEventListener("click", () => {
    if (running) return pause();
    $("run").textContent = "Pause";
    $("run").setAttribute("aria-pressed", "true");
    let last = performance.now();
    running = setInterval(() => { const ms = Math.round(performance.now() - last); last += ms; inTurn(() => advance([], ms)); }, 50);
  });
  $("undo").addEventListener("click", () => { pause(); playing = null; inTurn(() => { facts = []; told = ""; return restart(done.slice(0, -1)); }); });
  $("again").addEventListener("click", () => begin(lesson));
  $("quiet").addEventListener("change", (e) => $("lines").classList.toggle("quiet", e.target.checked));
  const chosen = () => begin(LESSONS.find((l) => "#" + l.id === location.hash) || LESSONS[0]);
  addEventListener("hashchange", chosen);
  chosen();
  await busy;
  document.body.dataset.ready = Math.round(performance.now());
}

load().catch((err) => { $("clock").textContent = "This browser cannot run the page: " + err; });
