// Package remote holds what every source that asks a server over the network needs: how a URL is checked, how the certificate of the server is verified,
// what is shown to it, and why it could not be read.
//
// A [Text] is a certificate, a key or a token, mostly in a file. [Roots] and [Pair] read their files again for each connection, so that
// successors are used without a restart. While the files cannot be used, what they held before stays in use, and the log says so.
//
// A [Failure] is an error of which the source knows the cause.
package remote
