// Package portable is the engine in plain Go: package net, a goroutine for each direction of a connection and for each UDP session,
// pooled buffers. It is the one to read first, and it runs everywhere.
package portable
