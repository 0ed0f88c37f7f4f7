// Package etcdconfig says which etcd to follow and how to talk to it: members, TLS, user, times. Both etcd sources are made of it, and
// it knows the client of neither.
//
// [Config] is checked by [Config.Complete]. [LoadConfigFile] reads the config files of v0.4's etcd client, and [TLSFiles] certificates
// that may be replaced while the program runs. [Names] resolves the names of members and dials them. [Config.LocalPorts] finds
// members on this machine, whose ports no service may have.
package etcdconfig
