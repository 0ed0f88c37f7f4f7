package main

import "time"

// A stage is one row of the school: what the program has to do, and who judges it.
type stage struct {
	number  int
	title   string
	promise string        // in the words of docs/school
	naive   string        // what a first attempt does instead
	history string        // who made this mistake: a defect of docs/compat.md, or an issue of a project
	takes   time.Duration // the judge gives up after that
	judge   func(t *trial)
	only    string // GOOS of the one system that it can be judged on; empty: any

	etcd, transactions bool // it is about etcd, and not judged over files; it needs transactions, which etcd 2 does not have
	ipv6               bool // it needs ::1
	seeded             bool // the same seed has the same done
	advanced           bool // no later stage assumes it
}

var stages = []stage{
	{number: 1, title: "A port for a record", judge: judgePort, takes: 2 * time.Minute,
		promise: "A client of a service's port reaches the service's endpoint, and bytes pass both ways unchanged.",
		naive:   "reads the records once, before they are there",
		history: "D8: an update before the handlers were registered was lost"},
	{number: 2, title: "Nobody waits for another", judge: judgeCrowd, takes: 2 * time.Minute,
		promise: "Clients that say nothing, and clients that never stop, hold up nobody else.",
		naive:   "serves one client at a time",
		history: "D36, kubernetes#12242: one endpoint that did not answer held up all clients"},
	{number: 3, title: "In turns", judge: judgeTurns, takes: 2 * time.Minute,
		promise: "Each new client gets the next endpoint. An address that stands twice in the list counts once.",
		naive:   "chooses at random, starts from the first endpoint for each client, or counts a repeated address twice",
		history: "D31, kubernetes#3640: every node sent its first client to the first endpoint"},
	{number: 4, title: "Half-close, both ways", judge: judgeHalfClose, takes: 2 * time.Minute,
		promise: "A client that has finished asking still gets its answer, and an endpoint that has finished answering still gets the rest of the question.",
		naive:   "closes both connections when one direction ends",
		history: "D39, moby/libnetwork#1598: the wrong half was closed"},
	{number: 5, title: "A change takes effect", judge: judgeChange, takes: 2 * time.Minute,
		promise: "A record that is written, changed or deleted takes effect within a second. Other services and open connections are unaffected.",
		naive:   "never closes a port, or closes and opens all ports at each change",
		history: "D10, traefik#9939: clients were refused while the configuration was loaded again"},
	{number: 6, title: "Nothing is an answer", judge: judgeNothing, takes: 2 * time.Minute,
		promise: "A service without endpoints keeps its port, and turns clients away at once. The last service can be deleted, too.",
		naive:   "takes an empty list for an error, or lets the client wait",
		history: "D9, D11, traefik#8092: the last service could not be deleted"},
	{number: 7, title: "An endpoint refuses", judge: judgeRefusing, takes: 2 * time.Minute,
		promise: "A client whose endpoint refuses gets the next one. When all refuse, the client is turned away at once.",
		naive:   "makes one attempt for each client",
		history: "D37, traefik#5598: no second endpoint was tried"},
	{number: 8, title: "An endpoint is silent", judge: judgeSilent, takes: 3 * time.Minute,
		promise: "An endpoint that neither answers nor refuses costs a client two seconds at most, and other clients nothing.",
		naive:   "waits for connect(2), which gives up after two minutes",
		history: "D36, kubernetes#12242: the accept loop itself connected"},
	{number: 9, title: "A bad record", judge: judgeBadRecord, takes: 2 * time.Minute,
		promise: "A record that cannot be read affects no other record, and its last good version stays in force.",
		naive:   "ends, or stops reading, at the first record that it cannot decode",
		history: "D12, D13, D17, D18, haproxytech/dataplaneapi#200: one bad record blocked everything"},
	{number: 10, title: "One port, two services", judge: judgeConflict, takes: 2 * time.Minute,
		promise: "The service that has the port keeps it. The other waits, and gets the port when the first one goes.",
		naive:   "tries to open the port once and forgets it, or lets the last record win",
		history: "D30, D34: the winner was random, and the loser tried again by luck"},
	{number: 11, title: "A UDP session", judge: judgeSession, takes: 2 * time.Minute,
		promise: "All datagrams of a client go to one endpoint, each new client gets the next one, and datagrams of 60,000 bytes pass whole.",
		naive:   "chooses an endpoint for each datagram, and cuts datagrams to the size of its buffer",
		history: "D41, traefik#8547: datagrams were cut"},
	{number: 12, title: "A session moves", judge: judgeMove, takes: 2 * time.Minute,
		promise: "When its endpoint leaves the record, a UDP client's next datagram goes to another endpoint.",
		naive:   "keeps the session where it was until it has been silent for a minute",
		history: "D42, kubernetes#139628: for 13 hours datagrams went to an endpoint that had gone"},
	{number: 13, title: "A slow reader", judge: judgeSlowReader, takes: 3 * time.Minute, only: "linux",
		promise: "Bytes for a client that does not read wait at the endpoint, not in the proxy, and arrive whole when it reads.",
		naive:   "puts what it reads into a queue without a limit",
		history: "D44 for sessions: nothing bounded what strangers could make the proxy hold"},
	{number: 14, title: "64 descriptors, 200 clients", judge: judgeDescriptors, takes: 3 * time.Minute, only: "linux",
		promise: "Without free descriptors the program neither ends nor spins. It serves again when clients have left.",
		naive:   "ends when accept(2) fails, or calls it again at once, for ever",
		history: "D38, kubernetes#5461, kubernetes#3943: the accept loop ran hot and filled the disk with log lines"},
	{number: 15, title: "SIGTERM drains", judge: judgeDrain, takes: 2 * time.Minute,
		promise: "On SIGTERM ports close at once, clients that are being served may finish, and the exit status is 0.",
		naive:   "dies of the signal, and its clients with it",
		history: "D49: there was no graceful stop"},
	{number: 16, title: "List and watch without a gap", judge: judgeGap, takes: 10 * time.Minute, etcd: true,
		promise: "Whatever is written to etcd takes effect, also between your list and your watch.",
		naive:   "lists, and then watches from whatever etcd has reached by then",
		history: "D20: events between list and watch were lost"},
	{number: 17, title: "A swap refuses nobody", judge: judgeSwap, takes: 5 * time.Minute, etcd: true, transactions: true,
		promise: "Two services swap their ports in one transaction, and no client is refused.",
		naive:   "applies the writes of a transaction one by one, and closes a port before it opens it for the other",
		history: "D34: removals came last, so a swap failed until the next update"},
	{number: 18, title: "etcd is killed, paused, wiped", judge: judgeOutages, takes: 5 * time.Minute, etcd: true,
		promise: "While etcd is away clients are served as before. When it is back, what it then has takes effect, even if its revisions begin again.",
		naive:   "ends with the first error, or watches on from a revision that etcd no longer has",
		history: "D24, D25, kubernetes#3216: after a compaction the proxy was stuck for ever"},
	{number: 19, title: "The exam", judge: judgeExam, takes: 4 * time.Minute, etcd: true, seeded: true,
		promise: "All of this holds at once, for a minute, whatever happens in which order.",
		naive:   "keeps each promise alone, and loses a connection, a descriptor or a change when two things happen together",
		history: "D32, kubernetes#28674: a change at the wrong moment ended the accept loop, and the port stayed open"},

	{number: 20, title: "An endpoint that is you", judge: judgeLoop, takes: 3 * time.Minute, advanced: true,
		promise: "An endpoint that is a port of the program itself is never used: its clients get another one, or are turned away at once.",
		naive:   "connects to itself, accepts, connects to itself again, and so on until it has no descriptors left",
		history: "D44: one datagram to itself took sessions and descriptors until there were none"},
	{number: 21, title: "The address of an answer", judge: judgeReplyAddress, takes: 2 * time.Minute, only: "linux", advanced: true,
		promise: "A UDP client is answered from the address that it has sent to, also when the program listens at all addresses.",
		naive:   "answers from one socket, and leaves the choice of the address to the system",
		history: "D45: a machine with several addresses answered from another one than the client had asked"},
	{number: 22, title: "The turn survives a change", judge: judgeRotation, takes: 2 * time.Minute, advanced: true,
		promise: "When the list of endpoints changes, the next client gets the endpoint whose turn it is, and not the first one again.",
		naive:   "begins again at the first endpoint with each change, or has a counter modulo the length, which jumps",
		history: "kubernetes#3640: each change of the list began again at its first endpoint"},
	{number: 23, title: "A watch that is dead", judge: judgeResync, takes: 4 * time.Minute, etcd: true, advanced: true,
		promise: "When the connection of the watch carries nothing any more, and does not end either, changes still take effect within 30 seconds.",
		naive:   "waits for the next event without a limit",
		history: "etcd#7247, kubernetes#76338: a watch that was dead looked like one without news"},
	{number: 24, title: "Two families of addresses", judge: judgeDualStack, takes: 2 * time.Minute, ipv6: true, advanced: true,
		promise: "Listening at 0.0.0.0 means all addresses, of IPv4 and IPv6, and clients and endpoints of both kinds meet in any combination.",
		naive:   "opens IPv4 sockets only, or splits an address at its first colon",
		history: "D31: an address was not checked before it was dialled"},
}
