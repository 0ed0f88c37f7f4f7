#!/usr/bin/env node
// A kube-proxy to begin with: it reads its options and its records, and prints them when they change. Opening ports is yours.
const fs = require("fs");

const options = Object.fromEntries(process.argv.slice(2).map((word) => word.replace(/^-+/, "").split("=")));
const root = options.registry_dir + "/registry/services/", bind = options.bind_address;

// read returns the records of a kind, specs or endpoints, by name.
function read(kind) {
  return Object.fromEntries(fs.readdirSync(root + kind).flatMap((name) => {
    try {
      return [[name, JSON.parse(fs.readFileSync(root + kind + "/" + name))]];
    } catch (error) {
      if (error.code === "ENOENT") return []; // it was deleted meanwhile
      throw error;
    }
  }));
}

let before = "";
setInterval(() => {
  const services = read("specs"), endpoints = read("endpoints");
  const now = JSON.stringify({ services, endpoints });
  if (now !== before) {
    console.log(now);
    before = now; // here: open the ports of new services at the address bind, and close those of old ones
  }
}, 100);
