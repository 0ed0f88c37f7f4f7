// Package etcdv2source keeps the rest of the program informed of what is written in an etcd 2, or in the v2 API of an etcd 3.
//
// It makes the same promise as package etcdsource: after each Update the state equals the registry at exactly that Update's revision,
// which is here the index of etcd, and the index never goes back unless etcd itself did. The client is net/http; there is no other.
//
// # A session
//
// A session is one TCP connection, and it is never resumed. One connection leads to one process, so what is listed and what is
// watched over it are of the same etcd:
//
//	   ├─ GET /v2/keys/registry/services?recursive=true&sorted=true&quorum=true
//	   │◀─ everything, at index X
//	SET @X ─▶ out
//	   ├─ GET …?recursive=true&wait=true&waitIndex=X+1        a long poll
//	   │◀─ headers at once: etcd's index now
//	   │◀─ one event, some day, at index Y ─▶ change @Y ─▶ out
//	   ├─ GET …&waitIndex=Y+1
//	   ⋮
//	   │       400, errorCode 401: etcd remembers 1,000 events, and the next one is not among them: list again
//	   │       an event of a whole directory, which has no values: list again
//
// etcd looks into its history before it waits, so nothing falls between two polls. When the connection breaks, a new session lists
// again: nothing proves that a new connection leads to the same etcd.
//
// About every sync period a new session is begun beside the one that stands, and takes over when its list is in. So each resync
// also moves the watch to another member. Where its list differs from what the old watch has told, that is counted and logged.
//
// # Silence
//
// A poll that has nothing to tell looks like one that has died. So every probe period etcd is asked, over a connection of its own and
// by quorum, for its index. If it is the one that is known, all is well. If it is later, others may have written elsewhere in etcd: a
// second poll from the known index finds out, for it would be answered from the history at once. A watch that does not tell what
// this poll tells is given up. See probe.go.
//
// # What is different from etcd 3
//
//   - An Update has one write, since etcd 2 has no transactions.
//   - "set" over a key gives it another createdIndex, as a deletion and a new creation would. A watch tells the two apart: the last good
//     version stays in force while the set value is bad. A list cannot, and then it counts as a new life of the key.
//   - Proxies of the environment (HTTP_PROXY) are not used, as in v0.4 and for etcd 3: they are meant for the world outside.
//   - Redirects are not followed: the members of the configuration are asked, and no others.
//
// # Which etcd it is
//
// With -etcd_version=auto, [Auto] asks the members for their version, and runs this source or that of etcd 3. It knows the latter only as
// a [config.Source].
//
// # What it cannot know
//
// A machine that vanishes without a word, and is replaced at the same address by an etcd that was wiped and has since written more, is
// taken for the old one until TCP's keepalive or the next resync finds out.
package etcdv2source
