// Package patroni reads what Patroni keeps in etcd of a cluster of PostgreSQL, and says which members serve.
//
// Below a prefix and the scope of the cluster, as in /service/pg/, Patroni writes with `etcd3:` in its configuration:
//
//	leader       m1                                          the primary's name; on its lease; deleted when the primary lets go, or its lease ends
//	members/m1   {"conn_url":"postgres://10.1.2.3:5432/…",   on the same lease
//	              "state":"running","role":"replica","xlog_location":67109832,"tags":{…}, …}
//	status       {"optime":67109832}                         the primary's position, in bytes; without a lease
//	config       {"ttl":30,"pause":true,                     without a lease
//	              "standby_cluster":{"host":…}, …}
//
// A [Cluster] is told of each key as it changes, and [Cluster.Serving] answers who serves. [Terms] are what a service asks for.
//
// # The primary
//
// The key leader alone says who it is, from its event on. Roles and states in the records of members lag by 0.1 to 2.5 s behind it (measured with
// Patroni 3.0.2), and the role `promoted` is sometimes never written: whoever waits for them loses that time at each change. One role counts:
// a standby_leader leads a cluster that follows another one, and is no primary. The standby_cluster of config says the same of any leader at once, so
// a new one whose record still says replica is no primary either.
//
// # Replicas
//
// A member is fit to read from if it is running, a replica or a standby leader, not the primary, has no tag noloadbalance that Python takes for
// true, and is not further behind the primary's position than the service allows. A record that is older than status is compared with the status before, if
// that was seen: the two are written at different moments of each loop_wait. The position in its record is the greater of what it has received and
// what it has replayed, so one whose replay is paused seems to be up to date; an active check of /replica?lag=… sees that.
//
// # What cannot be used
//
// A value that cannot be read changes nothing: the last good one of the same key counts until the key is deleted. No error shows a conn_url,
// which may contain a password.
//
// The package does no I/O and logs nothing. A Cluster belongs to one goroutine at a time.
package patroni
