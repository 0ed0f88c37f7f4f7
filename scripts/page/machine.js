// A Machine is the program of this folder with one world in it. The page and the tests use it alike, in a browser and in node.
"use strict";

class Machine {
  // start makes a world of some nodes. module is the compiled program, and tell is called with each log line of the nodes.
  static start(module, nodes, tell) {
    const machine = new Machine();
    const decoder = new TextDecoder();
    let rest = "";
    const write = (fd, bytes) => {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) tell(Machine.parse(line));
      return bytes.length;
    };
    // Package os writes by globalThis.fs. The callback has to come later: Go cannot be called while it calls.
    Object.assign(globalThis.fs, {
      writeSync: write,
      write: (fd, bytes, offset, length, position, callback) => {
        write(fd, bytes.subarray(offset, offset + length));
        queueMicrotask(() => callback(null, length));
      },
    });
    return new Promise((ready, failed) => {
      globalThis.kubeproxyPage = {
        nodes,
        ready: (text) => { machine.page = globalThis.kubeproxyPage; machine.state = JSON.parse(text); ready(machine); },
        done: (text) => { machine.state = JSON.parse(text); machine.waiting.resolve(machine.state); },
      };
      const go = new Go();
      go.exit = (code) => { machine.ended = new Error("the program has ended with status " + code); machine.waiting?.reject(machine.ended); failed(machine.ended); };
      WebAssembly.instantiate(module, go.importObject).then((instance) => go.run(instance)).catch(failed);
    });
  }

  // advance carries out orders, then lets some milliseconds pass, and returns the state of the world after them. One call at a time.
  advance(orders, ms) {
    if (this.ended) return Promise.reject(this.ended);
    return new Promise((resolve, reject) => {
      this.waiting = { resolve, reject };
      this.page.tick(JSON.stringify(orders), ms);
    });
  }

  // parse takes a line of the log apart: I0101 00:00:00.250000       1 search.go:95] text. The world begins with the year 2000.
  static parse(line) {
    const m = /^([IWEF])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})\s+\d+ ([^:]+):(\d+)\] (.*)$/.exec(line);
    if (!m) return { level: "", text: line };
    const at = Date.UTC(2000, m[2] - 1, m[3], m[4], m[5], m[6]) - Date.UTC(2000, 0, 1) + m[7] / 1000;
    return { level: m[1], at, file: m[8], line: Number(m[9]), text: m[10] };
  }
}

if (typeof module !== "undefined") module.exports = { Machine };
