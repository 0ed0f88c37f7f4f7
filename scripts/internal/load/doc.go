// Package load is clients at work, and the backends that answer them: plain loops over epoll that
// allocate nothing, so that what is measured is the proxy between the two. Clients are [Load]s, which
// [Conduct] has work for a while; backends are a process of their own.
package load
