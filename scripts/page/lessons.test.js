// Plays all lessons in node, and fails for each fact that does not hold at its instant, or that holds before anything was played.
// usage: node lessons.test.js WASM WASM_EXEC
"use strict";
const fs = require("fs");
const { Machine } = require("./machine.js");
const { LESSONS } = require("./lessons.js");

globalThis.require = require;
globalThis.path = require("path");
globalThis.fs = { ...fs };
require(require("path").resolve(process.argv[3]));

(async () => {
  const module = await WebAssembly.compile(fs.readFileSync(process.argv[2]));
  let facts = 0, failed = 0, lines = 0;
  const fail = (...what) => { failed++; console.log("FAIL", ...what); };
  const play = async (lesson) => {
    const log = [], told = [];
    const machine = await Machine.start(module, lesson.nodes, (line) => { lines++; if (!line.file) fail(lesson.id, "a line of the log is none:", line.text); log.push(line); });
    for (const [orders, ms] of lesson.setup) await machine.advance(orders, ms);
    for (const [n, step] of lesson.steps.entries()) {
      if (!step.choices[step.right]) fail(lesson.id, "step", n + 1, "has no right answer");
      const began = machine.state.now;
      for (const part of step.play) {
        const before = machine.state, after = await machine.advance(part.do, part.wait);
        for (const e of after.events) if (e.kind === "error") fail(lesson.id, e.text);
        told.push([after.now, after.clients.map((c) => [c.name, c.state, c.answers, c.took]), after.nodes.map((x) => [x.ports, x.rotations])]);
        for (const fact of part.facts) {
          facts++;
          const said = /^(?:at )?(\d+) ms( later)?/.exec(fact.text); // the page prints the time of the world beside it
          if (said && Number(said[1]) !== after.now - (said[2] ? began : 0)) fail(`${lesson.id}, step ${n + 1}: is judged at ${after.now} ms, ${after.now - began} ms after the step began: ${fact.text}`);
          if (!fact.holds(after)) fail(`${lesson.id}, step ${n + 1}, at ${after.now} ms: not true: ${fact.text}\n${JSON.stringify(after)}`);
          else if (part.facts.length === 1 && fact.holds(before) && !/still/.test(fact.text) && part.do.length) fail(`${lesson.id}, step ${n + 1}: was true before: ${fact.text}`);
        }
      }
    }
    return JSON.stringify(told);
  };
  for (const lesson of LESSONS) {
    if (await play(lesson) !== await play(lesson)) fail(lesson.id, "does not happen again as it did: undo would lie");
  }
  console.log(`${LESSONS.length} lessons, ${facts / 2} facts, each twice; ${lines} log lines; ${failed} failed`);
  process.exit(failed ? 1 : 0);
})().catch((err) => { console.log("FAIL", err); process.exit(1); });
