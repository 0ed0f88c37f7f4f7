// Package apisource keeps the rest of the program informed of the services and endpoints of a Kubernetes API server, of any age:
// it is the source that v0.4's -master was.
//
// # What it is for
//
// In a cluster only the API server talks to etcd. A [Source] lists and watches, over HTTP, what the server makes of it. It knows two
// dialects, and finds out which one a server speaks ([Config].APIVersion says it beforehand):
//
//	            v1beta1: v0.4 to v0.20              v1: since 1.0
//	list        everything in one answer            pages of 500, all of one version
//	watch       /watch/services, no end             ?watch=true, ends after 5 to 10 minutes, a bookmark each minute
//	endpoints   Endpoints                           EndpointSlices; Endpoints where a server has none
//	not told    etcd's update, expire, deletion     nothing
//	            of a directory, bad records
//	list again  each SyncPeriod                     every 20th
//
// Each object becomes a [records.Version] with the key that the record has in a registry in etcd, and goes through the same
// decoding. So the package knows nothing of ports and addresses.
//
// # A session
//
// There are two resources, services and the one with the endpoints. Each is listed, and then watched from the version of the list:
// the server tells everything that was written since.
//
//	GET /version, /api                    what is this server?
//	   │
//	   ├─ services:   list @V ──▶ watch from V ──▶ events, bookmarks ──▶ again from the last version, at its end
//	   └─ endpoints:  list @W ──▶ watch from W ──▶ …
//	   │
//	   SET once both are listed; from then on each event is one Update
//	   │
//	   └─ each sync period: another list beside the watch. What it shows and the watch has not told is mended, and counted
//
// A watch that breaks, or that the server ends with an error, ends the session. The next one begins with lists.
//
// # The invariant
//
// There are two watches, and no version for both. So the state of this source is not the registry at one moment, as it is with
// etcd. For each object by itself holds:
//
//	What is in force is a state that the object really had, and it never goes back to an earlier one,
//	unless the registry itself did. Once nothing is written any more, every object is as the server has it.
//
// A list that is older than what is known comes from a server that lags, or from a registry that was wiped or restored. Three in a
// row, a second apart, are believed.
//
// # Promises
//
//   - [New] starts nothing and connects to nothing; [Source.Run] blocks until its context ends, and then nothing of it is left. It
//     never gives up.
//   - A server that is away, or refuses, changes nothing. One record that a v1beta1 cannot decode fails its every list: the watch goes
//     on, also a new one, from the version that is known.
//   - Nothing waits for ever. A connection has DialTimeout, an answer RequestTimeout for each 16 KiB of it, and a v1 is asked each
//     30 s how far it has come. A v1 that owes bookmarks for three minutes is left. The silence of a v1beta1 proves nothing: the next
//     list finds out.
//   - A watch that ends within 5 s of its beginning is no progress. It ends the session, and the next one begins after a pause, of up to 5 s.
//   - A list that does not end is an error, however it goes on: pages, objects and bytes are counted, after decompression.
//   - A list is read object by object. Of an object that is longer than a record may be only the beginning is kept, to name it.
//   - The token goes to the server that was named, never to where it redirects, and into no log line.
//
// # Reading order
//
// config.go and credentials.go say what can be set, kubeconfig.go reads it from a file. source.go is the frame: sessions one after
// the other. session.go is the picture above, told in code. dialect.go knows the paths; list.go, watch.go and object.go read answers, by
// scanner.go; client.go asks. status.go is what operators see; cause.go says why.
package apisource
