#!/usr/bin/env node
// What many people write first in Node: pipe does most of the work.
const fs = require("fs"), net = require("net");

const options = Object.fromEntries(process.argv.slice(2).map((word) => word.replace(/^-+/, "").split("=")));
const root = options.registry_dir + "/registry/services/", turns = {}, open = {};
let endpoints = {};

function read(kind) {
  const names = fs.readdirSync(root + kind);
  return Object.fromEntries(names.map((name) => [name, JSON.parse(fs.readFileSync(root + kind + "/" + name))]));
}

function serve(name, client) {
  const addresses = [...new Set(endpoints[name].endpoints)];
  turns[name] = ((turns[name] ?? -1) + 1) % addresses.length;
  const [host, port] = addresses[turns[name]].split(":");
  const endpoint = net.connect(port, host);
  client.pipe(endpoint).pipe(client);
  for (const conn of [client, endpoint]) conn.on("error", () => { client.destroy(); endpoint.destroy(); });
}

setInterval(() => {
  endpoints = read("endpoints");
  for (const [name, service] of Object.entries(read("specs"))) {
    if (!open[name]) open[name] = net.createServer((client) => serve(name, client)).listen(service.port, options.bind_address);
  }
}, 100);
