// Package load makes load: clients, and the backends that answer them. Light ones are plain loops over epoll that allocate nothing, so a
// measurement shows the proxy between them; others are goroutines, as many programs are ([Clients]). A [Load] is a kind of client;
// [Conduct] runs several for a while. Backends are a process of their own.
package load
