// Package load makes load: clients, and the backends that answer them. Both are plain loops over epoll that allocate nothing, so a
// measurement shows the proxy between them. A [Load] is a kind of client; [Conduct] runs several for a while. Backends are a process of
// their own.
package load
