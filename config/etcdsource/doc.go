// Package etcdsource keeps the rest of the program informed of what is written in etcd.
//
// # What it is for
//
// The registry is a prefix in etcd. Others write to it, whenever they like; we must know at any moment what it says, and must go on knowing
// what it said when etcd cannot be reached. A [Source] turns the one into the other: it sends a stream of [registry.Update], first a SET
// with everything, then whatever changes, and now and then a SET again.
//
// That looks like two calls, Get and Watch. The difficulty is all in the word "again". Connections break, tokens expire, history is
// compacted away under a reader, members lag behind, and sometimes an operator restores last night's backup, or starts afresh with the same
// flags, and etcd comes back with the same ids, the same revision numbers and other values. v0.4 watched "from now" after each of its
// troubles and hoped for the next list (D20). Here the aim is to be able to say at each step what is known, and why.
//
// # The invariant
//
//	After each Update the source's state equals the registry at exactly that Update's revision,
//	and the revision never goes back unless etcd itself did.
//
// "Equals" means for each key: the newest decodable value that the source was given, at or before that revision, within the key's present
// life (the same create revision). So a value that does not decode leaves the last good version of its key in force and touches nothing
// else (D17, D18); a delete or a re-creation ends that version.
//
// # A session
//
// All work is done in sessions. A session is one watch stream on a connection of its own, and it is never resumed: a stream that still
// stands is the only thing which shows that the etcd behind it is still the same one. When it breaks, the next session begins anew.
//
//	 watch connection                             list connection
//	      │
//	      ├─ watch the prefix from now on
//	      │◀─ created, at revision C
//	      │                                             │
//	      │◀─ events: held, in order                    ├─ read the prefix, newest, page by page
//	      │                                             │  at the first page's revision H ≥ C
//	      ├─ are you still there?                       │◀─ all pages
//	      │◀─ yes (so both are of one etcd)
//	      │
//	SET @H ──▶ out
//	      │◀─ events: those ≤ H are in the list already; each response with later ones is one Update
//	      │
//	      │         every 30 s ± 20 %, first sooner: a resync, while the watch goes on
//	      │                                             ├─ read the prefix at the newest revision heard of
//	      │◀─ events: remembered, they are newer        │
//	SET  ──▶ out                                        │◀─ all pages
//	      │
//	      │         silence: are you still there? If not: has etcd gone on without us?
//	      ▼
//	  broken, cancelled, dead, went back ──▶ what is known stays in force; the next session begins
//
// Because the watch stands before the list is asked for, nothing can fall between them, and no revision to resume from can be compacted
// away. The two have separate connections so that a long list does not hold up the events.
//
// A list, once it is in, is the truth, empty or not (D9). What is different in it is decided by the bytes, never by revisions. And where a
// resync differs from what the watch has told, the watch has lost something: such a divergence is mended, counted and logged.
//
// # Silence
//
// Most of the time nothing is written, and a watch that has nothing to tell looks just like one that has died without a word. So after a
// second of silence the watch is asked how far it has come, which an etcd answers at once. If it does not, etcd is asked over another
// connection which revision it has reached. Only when that is further than the watch has come, and it still does not come, is the watch
// given up. See probe.go.
//
// A watch that speaks may be far behind, because this process was stopped or is slow. Then etcd would read its history for it, and hold all writes
// back meanwhile. So such a watch is given up for a list. See package behind.
//
// # Promises
//
//   - [New] starts nothing and connects to nothing; [Source.Run] blocks until its context ends, and then
//     nothing of it is left. It never gives up and never ends for another reason.
//   - What etcd committed together arrives together: an Update has whole transactions, and a page boundary is no
//     boundary. A transaction that changes no object makes an Update too; its revision is news.
//   - Unreachable etcd changes nothing. Nothing waits for ever: lists, logins, connections and the opening
//     of a watch have deadlines, and the pauses between attempts grow to a second and no further.
//   - The goroutine that owns the state does no I/O. Events that it cannot handle yet wait in 16 MiB, and the rest in
//     etcd. Where more waits, a value that a later one of its key has overtaken is dropped; it counts as not given.
//   - Status.Current is a moment: everything that etcd had committed by then has been sent. It comes from answers of
//     etcd to questions of that moment, never from when an event was received.
//   - A watch that is more than 5,000 revisions behind is given up before it has told 16 KiB more.
//   - One bad record never hides a good one. It is logged once for each distinct value.
//   - The log of ten minutes of trouble, whatever trouble it is, has tens of lines.
//   - A service's Created is the create revision of the key in force. In namespace default that is the
//     namespaced key if it has a good version, else v0.4's flat key. Its Since is the mod revision at which this
//     source first saw the key claim a port, and saw it claim the port in all good versions from then on.
//
// # What it cannot know
//
// Behind etcd's grpc-proxy the stream that stands is the proxy's, which resumes its own behind our back, and answers no progress requests.
// There, a silent watch is proved alive by reading which keys have changed, and whether lists and watch are of the same etcd is taken on
// trust; a resync mends what that trust cost.
//
// # Reading order
//
// Package etcdconfig says what can be set. source.go is the frame: sessions one after the other.
// session.go is the picture above, told in code, with watch.go, inbox.go, list.go and client.go below it; stream.go asks for a list in one
// stream, where etcd has that, and package pages reads the pages of a list and the parts of a stream in place: a resync of 10,000 services takes 43 ms for 63 ms that way, and leaves
// 2.6 MB of garbage for 11 MB. following.go is about the keys outside the registry that records name. Package events knows what a list of events takes; package records turns values into changes; probe.go listens to silence, and age.go finds out up
// to which moment everything is known.
// status.go is what operators see, and where an outage begins and ends in the log; cause.go says why,
// setback.go whether it is still the same etcd.
package etcdsource
