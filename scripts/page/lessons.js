// The seven lessons: each step asks for a prediction, plays, shows facts that are checked against the world at their instant, and explains.
// The page plays them for a reader, and lessons.test.js for the gate.
"use strict";

const LESSONS = (() => {
  const prefix = "/registry/services/";
  const key = (name) => prefix + name;
  const put = (name, value) => ({ key: key(name), value: typeof value === "string" ? value : JSON.stringify(value) });
  const del = (name) => ({ key: key(name), value: null });
  const write = (...records) => ({ do: "write", records });
  const host = (name, state) => ({ do: "host", host: name, state });
  const tcp = (node = 1, port = 8000, hold = 300) => ({ do: "tcp", node, port, hold });
  const udp = (client, port = 5300) => ({ do: "udp", client, node: 1, port });
  const ip = { one: "10.77.2.11", two: "10.77.2.12", three: "10.77.2.13", four: "10.77.2.14" };
  const at = (port, ...hosts) => hosts.map((h) => ip[h] + ":" + port);
  const web = (...hosts) => [
    put("endpoints/web", { kind: "Endpoints", apiVersion: "v1beta1", id: "web", endpoints: at(8080, ...hosts) }),
    put("specs/web", { kind: "Service", apiVersion: "v1beta1", id: "web", port: 8000, protocol: "TCP" }),
  ];
  const dns = (...hosts) => [
    put("endpoints/dns", { kind: "Endpoints", apiVersion: "v1beta1", id: "dns", endpoints: at(9053, ...hosts) }),
    put("specs/dns", { kind: "Service", apiVersion: "v1beta1", id: "dns", port: 5300, protocol: "UDP" }),
  ];

  // What facts read from a state.
  const client = (s, n) => s.clients.find((c) => c.name === String(n)) || { answers: [] };
  const answered = (s, n) => client(s, n).answers.join(" ");
  const rotation = (s, service, node = 0) => s.nodes[node].rotations.find((r) => r.service === service) || { endpoints: [] };
  const endpoint = (s, service, h) => rotation(s, service).endpoints.find((e) => e.addr.startsWith(ip[h] + ":")) || {};
  const port = (s, number) => s.nodes[0].ports.find((p) => p.port === number) || {};
  const fact = (text, holds) => ({ text, holds });
  const play = (does, wait, ...facts) => ({ do: does, wait, facts });

  return [
    {
      id: "turns", title: "Turns, and the herd", nodes: 3,
      intro: "Three nodes serve web on port 8000. Three endpoints stand behind it. Each node keeps its own rotation.",
      setup: [[[write(...web("one", "two", "three"))], 1]],
      steps: [
        {
          question: "Three clients come to node1, one after the other. Who answers them?",
          choices: ["one, two, three", "one, one, one", "three at random"], right: 0,
          play: [
            play([tcp(1)], 1, fact("client 1 is answered by one, and it is two's turn", (s) => answered(s, 1) === "one" && rotation(s, "web").next === 1)),
            play([tcp(1)], 1, fact("client 2 is answered by two", (s) => answered(s, 2) === "two")),
            play([tcp(1)], 1, fact("client 3 is answered by three, and it is one's turn again", (s) => answered(s, 3) === "three" && rotation(s, "web").next === 0)),
          ],
          explain: "A rotation is a list of endpoints and a cursor. To choose is one atomic addition: clients wait for no lock.",
          source: [["proxy/balance/rotation/choice.go", "func (r *Rotation) Choose"]],
        },
        {
          question: "Now the first client of node2 comes, and the first of node3. Who answers them?",
          choices: ["two and three, for the nodes share the turn", "one and one"], right: 1,
          play: [
            play([tcp(2), tcp(3)], 1, fact("clients 4 and 5 are both answered by one", (s) => answered(s, 4) === "one" && answered(s, 5) === "one"),
              fact("one has three connections, two and three have one each", (s) => s.hosts.map((h) => h.served).slice(0, 3).join() === "3,1,1")),
          ],
          explain: "Nodes tell each other nothing. If all begin with the first endpoint, it gets the first client of each node: a herd. So kube-proxy begins at random (-rr_random_start); this page turns that off, since what is random cannot be undone and replayed.",
          source: [["proxy/balance/roundrobin.go", "func NewLoadBalancerRR"]],
        },
      ],
      tryIt: "Send six clients to each node. The shares become even, but every node still began with one. Then remove two from the record of the endpoints, and look where the cursor goes on.",
    },
    {
      id: "refuses", title: "An endpoint refuses", nodes: 1,
      intro: "The process of two is gone: its machine answers each connection with a reset.",
      setup: [[[write(...web("one", "two", "three"))], 1], [[tcp()], 1]],
      steps: [
        {
          question: "It is two's turn, and two refuses. What does client 2 see?",
          choices: ["a refused connection", "an answer of three at once", "an answer of three after 250 ms"], right: 1,
          play: [
            play([host("two", "refuses"), tcp()], 1,
              fact("client 2 is answered by three after 0 ms", (s) => answered(s, 2) === "three" && client(s, 2).took === 0),
              fact("two is ejected for 1 s, of which 999 ms are left", (s) => endpoint(s, "web", "two").ejected === 999 && endpoint(s, "web", "two").failures === 1)),
            play([tcp()], 1, fact("client 3 is answered by one", (s) => answered(s, 3) === "one")),
            play([tcp()], 1, fact("client 4 does not try two again: three answers", (s) => answered(s, 4) === "three" && endpoint(s, "web", "two").failures === 1)),
          ],
          explain: "A refusal is an answer, so the next attempt begins at once. The client notices nothing. The endpoint is ejected, so that the next clients do not try it.",
          source: [["proxy/tcp/race.go", "type Race struct"], ["proxy/balance/health/health.go", "package health"]],
        },
        {
          question: "Two stays dead. A second later its ejection ends, and clients come again. How long is its next ejection?",
          choices: ["1 s", "2 s", "for ever"], right: 1,
          play: [
            play([], 997, fact("at 1002 ms two is not ejected any more", (s) => endpoint(s, "web", "two").ejected === 0)),
            play([tcp(), tcp(), tcp()], 1,
              fact("all three clients are answered", (s) => [5, 6, 7].every((n) => ["one", "three"].includes(answered(s, n)))),
              fact("one of them has tried two, which is ejected for 2 s", (s) => endpoint(s, "web", "two").failures === 2 && endpoint(s, "web", "two").ejected === 1999)),
          ],
          explain: "Each failure doubles the ejection, up to 30 s. Then one client tries. If the endpoint answers, it is well again.",
          source: [["proxy/balance/health/health.go", "package health"]],
        },
      ],
      tryIt: "Have all three refuse. A client is refused then, and the log says which endpoints were tried. Bring one back: ejected endpoints are tried when there is no other.",
    },
    {
      id: "silent", title: "An endpoint is silent", nodes: 1,
      intro: "The machine of two has vanished. Nobody refuses for it: packets to it are answered by nothing.",
      setup: [[[write(...web("one", "two", "three"))], 1], [[tcp()], 1]],
      steps: [
        {
          question: "It is two's turn. After how long does client 2 have an answer?",
          choices: ["at once", "after 250 ms", "after 4 s, the time limit of a dial"], right: 1,
          play: [
            play([host("two", "silent"), tcp()], 249,
              fact("249 ms later client 2 still waits", (s) => client(s, 2).state === "waits"),
              fact("the proxy still dials two: it is not blamed yet", (s) => endpoint(s, "web", "two").ejected === 0 && endpoint(s, "web", "two").failures === 0)),
            play([], 1,
              fact("250 ms later three is dialled beside two, and answers client 2", (s) => answered(s, 2) === "three" && client(s, 2).took === 250),
              fact("two is ejected for 1 s", (s) => endpoint(s, "web", "two").ejected === 1000)),
            play([tcp()], 1, fact("client 3 waits for nothing: one answers after 0 ms", (s) => answered(s, 3) === "one" && client(s, 3).took === 0)),
          ],
          explain: "Silence may still become an answer. So the proxy does not give up: after 250 ms it dials the next endpoint beside the silent one, and the first to accept wins. The dead machine costs one client a quarter of a second.",
          source: [["proxy/tcp/race.go", "type Race struct"], ["proxy/engine/timing.go", "Stagger"]],
        },
        {
          question: "Now all three are silent. When is client 4 turned away?",
          choices: ["after 750 ms", "after 4.5 s", "never: it waits for ever"], right: 1,
          play: [
            play([host("one", "silent"), host("three", "silent"), tcp()], 4499, fact("after 4499 ms client 4 still waits", (s) => client(s, 4).state === "waits")),
            play([], 1, fact("after 4.5 s client 4 is turned away", (s) => client(s, 4).state === "refused" && client(s, 4).took === 4500)),
          ],
          explain: "The attempts begin after 0, 250 and 500 ms, and -dial_timeout gives each 4 s. With more endpoints, -dial_total_timeout would end the search after 5 s. A client that has to fail should fail while somebody still waits for it.",
          source: [["proxy/tcp/race.go", "type Race struct"]],
        },
      ],
      tryIt: "Make two slow instead. A slow endpoint accepts, and answers 2 s later: no proxy can tell that from a long answer, so the client waits. Active checks by HTTP find it.",
    },
    {
      id: "claims", title: "Two services want one port", nodes: 1,
      intro: "web has port 8000. Then somebody writes a service thief, with the same port.",
      setup: [[[write(...web("one", "two"))], 1], [[write(put("endpoints/thief", { id: "thief", endpoints: at(8080, "four") }))], 1]],
      steps: [
        {
          question: "thief claims port 8000, too. Who answers the next client?",
          choices: ["four, for the newest record wins", "one, for web keeps its port", "nobody: the port closes"], right: 1,
          play: [
            play([write(put("specs/thief", { id: "thief", port: 8000 }))], 1,
              fact("web owns port 8000, and thief waits", (s) => port(s, 8000).owner === "web" && port(s, 8000).waiting.join() === "thief")),
            play([tcp()], 1, fact("client 1 is answered by one", (s) => answered(s, 1) === "one")),
          ],
          explain: "A claim is the wish of a service to own a port. The first claim owns it, and later ones wait in order. A mistake in a new record takes no client away from an old service.",
          source: [["proxy/claims.go", "package proxy"], ["proxy/settling.go", "package proxy"]],
        },
        {
          question: "The record of web is deleted, while client 1 is connected. What happens?",
          choices: ["the port closes, and thief opens it later", "thief has the port at once, and client 1 stays connected", "client 1 is cut"], right: 1,
          play: [
            play([write(del("specs/web"))], 1,
              fact("thief owns port 8000: the socket was never closed", (s) => port(s, 8000).owner === "thief" && port(s, 8000).waiting.length === 0),
              fact("client 1 is still served by one", (s) => client(s, 1).state === "served" && s.nodes[0].sessions.some((x) => x.endpoint.startsWith(ip.one)))),
            play([tcp()], 1, fact("client 2 is answered by four", (s) => answered(s, 2) === "four")),
          ],
          explain: "The listener has a pointer to its owner. The next claim gets the open socket by a swap of that pointer, so nobody is refused meanwhile.",
          source: [["proxy/settling.go", "package proxy"]],
        },
      ],
      tryIt: "Write the record of web again. Now web waits: what counts is who has the port, not whose name is older.",
    },
    {
      id: "bad", title: "A bad record", nodes: 1,
      intro: "Records are text, and people write text. web works. Now its record is edited by hand.",
      setup: [[[write(...web("one", "two"), ...dns("one"))], 1]],
      steps: [
        {
          question: 'Somebody writes "port": "8000", with quotation marks. What happens to web?',
          choices: ["it goes on as before", "it listens on a random port", "it is gone, until the record is mended"], right: 0,
          play: [
            play([write(put("specs/web", '{"kind":"Service","apiVersion":"v1beta1","id":"web","port":"8000"}'))], 1,
              fact("the decoder says what is wrong", (s) => s.nodes[0].rejected.length === 1 && s.nodes[0].rejected[0].reason === "port holds a string where a whole number is wanted"),
              fact("web still owns port 8000, and dns its own", (s) => port(s, 8000).owner === "web" && port(s, 5300).owner === "dns")),
            play([tcp()], 1, fact("client 1 is answered by one", (s) => answered(s, 1) === "one")),
          ],
          explain: "Each record is decoded once, completely. A value that does not decode changes nothing: the last good one of its key stays in force. v0.4 read this record as port 0, and listened on a random port.",
          source: [["registry/decode/decode.go", "package decode"], ["config/records/state.go", "package records"]],
        },
        {
          question: "The bad record is deleted. And now?",
          choices: ["the last good version stays in force for ever", "web is gone: a deletion is a clear word"], right: 1,
          play: [
            play([write(del("specs/web"))], 1, fact("port 8000 is closed, and nothing is wrong any more", (s) => port(s, 8000).port === undefined && s.nodes[0].rejected.length === 0)),
            play([tcp()], 1, fact("client 2 is refused", (s) => client(s, 2).state === "refused")),
          ],
          explain: "What was good lives as long as its key. A deletion ends it, whatever the last value was.",
          source: [["config/records/state.go", "func (s *State) Remove"]],
        },
      ],
      tryIt: "Write a list of endpoints in which one address is wrong. That entry is left out with a warning; the others stay.",
    },
    {
      id: "udp", title: "A UDP session moves", nodes: 1,
      intro: "UDP has no connections, so the proxy remembers: this client's datagrams go to that endpoint. That is a session.",
      setup: [[[write(...dns("one", "two"))], 1]],
      steps: [
        {
          question: "Client A sends two datagrams, then client B sends one. Who answers?",
          choices: ["A: one, two. B: one", "A: one, one. B: two"], right: 1,
          play: [
            play([udp("A")], 1, fact("A is answered by one", (s) => answered(s, "A") === "one")),
            play([udp("A")], 1, fact("A is answered by one again: its session keeps its endpoint", (s) => answered(s, "A") === "one one" && s.nodes[0].sessions.length === 1)),
            play([udp("B")], 1, fact("B is answered by two: there are two sessions", (s) => answered(s, "B") === "two" && s.nodes[0].sessions.length === 2)),
          ],
          explain: "A turn is for a session, not for a datagram. Replies leave from the address that the client sent to.",
          source: [["proxy/udp/session.go", "package udp"]],
        },
        {
          question: "One leaves the record. It still answers, if somebody asks it. Where does A's next datagram go?",
          choices: ["to one, until the session has been silent for a minute", "to two"], right: 1,
          play: [
            play([write(...dns("two"))], 1, fact("the session of A still is with one, for A has sent nothing", (s) => s.nodes[0].sessions.some((x) => x.endpoint.startsWith(ip.one)))),
            play([udp("A")], 1,
              fact("A is answered by two", (s) => answered(s, "A") === "one one two"),
              fact("its session goes on, with another endpoint", (s) => s.nodes[0].sessions.length === 2 && s.nodes[0].sessions.every((x) => x.endpoint.startsWith(ip.two)))),
          ],
          explain: "A session whose endpoint is gone moves with the next datagram. In Kubernetes the kernel's connection tracking remembers flows. Since 2016 kube-proxy has deleted those of endpoints that are gone (kubernetes#22573). Cases that it forgot were reported until 2026 (kubernetes#139628): such clients asked dead pods for as long as they kept asking.",
          source: [["proxy/portable/session_move.go", "package portable"], ["proxy/udp/session.go", "Move"]],
        },
        {
          question: "Both clients are silent. When do the sessions end?",
          choices: ["when the client closes its socket", "after 60 s of silence"], right: 1,
          play: [
            play([], 59990, fact("after 59.99 s there are two sessions", (s) => s.nodes[0].sessions.length === 2)),
            play([], 10, fact("after a minute of silence there is none", (s) => s.nodes[0].sessions.length === 0)),
          ],
          explain: "Datagrams have no end, so silence has to be one: -udp_timeout, 60 s by default.",
          source: [["proxy/udp/ending.go", "package udp"]],
        },
      ],
      tryIt: "Have two refuse and send as A: the refusal moves the session. Have it silent instead: nothing tells the proxy, so A waits.",
    },
    {
      id: "swap", title: "Two services swap ports", nodes: 1,
      intro: "web is at port 8000 and api at port 9000. A transaction exchanges the two, while clients come.",
      setup: [[[write(...web("one"), put("endpoints/api", { id: "api", endpoints: at(8080, "two") }), put("specs/api", { id: "api", port: 9000 }))], 1], [[tcp(1, 8000, 5000), tcp(1, 9000, 5000)], 1]],
      steps: [
        {
          question: "Both records change in one transaction. How many clients are refused?",
          choices: ["those that come while the ports are closed", "none"], right: 1,
          play: [
            play([write(put("specs/web", { id: "web", port: 9000 }), put("specs/api", { id: "api", port: 8000 })), tcp(1, 8000), tcp(1, 9000)], 0,
              fact("clients 3 and 4, who come at the same instant, are answered", (s) => ["one", "two"].includes(answered(s, 3)) && ["one", "two"].includes(answered(s, 4)))),
            play([tcp(1, 8000), tcp(1, 9000)], 1,
              fact("api owns port 8000, and web port 9000", (s) => port(s, 8000).owner === "api" && port(s, 9000).owner === "web"),
              fact("client 5 at port 8000 is answered by two, client 6 at port 9000 by one", (s) => answered(s, 5) === "two" && answered(s, 6) === "one")),
            play([], 1, fact("the clients from before are still connected to their endpoints", (s) => client(s, 1).state === "served" && client(s, 2).state === "served")),
          ],
          explain: "The batch edits all claims first, and then settles each touched port once. No port is without a claim at that moment, so no socket closes. v0.4 opened before it closed, and could not do it at all.",
          source: [["proxy/update.go", "func (p *Proxier) OnUpdate"], ["proxy/settling.go", "package proxy"]],
        },
        {
          question: "The registry goes away, and somebody swaps the ports back. What do clients see?",
          choices: ["the old state, until the registry is back", "the ports close after 30 s"], right: 0,
          play: [
            play([{ do: "store", state: "away" }, write(put("specs/web", { id: "web", port: 8000 }), put("specs/api", { id: "api", port: 9000 }))], 60000,
              fact("a minute later api still owns port 8000", (s) => port(s, 8000).owner === "api" && !s.nodes[0].connected)),
            play([tcp(1, 8000)], 1, fact("client 7 at port 8000 is answered by two", (s) => answered(s, 7) === "two")),
            play([{ do: "store", state: "up" }], 4000, fact("once it can be read again, both changes come as one step", (s) => port(s, 8000).owner === "web" && port(s, 9000).owner === "api")),
            play([tcp(1, 8000)], 1, fact("client 8 at port 8000 is answered by one", (s) => answered(s, 8) === "one")),
          ],
          explain: "A registry that does not answer is no reason to change anything. The source tries again, and then compares a full list with what it knows.",
          source: [["config/queue.go", "package config"]],
        },
      ],
      tryIt: "Swap in two transactions instead of one. The first one makes a conflict, in which the present owner keeps its port; the second one solves it.",
    },
  ];
})();

if (typeof module !== "undefined") module.exports = { LESSONS };
