// Package epoll is the engine for Linux: a few event loops over bare sockets. One loop carries many clients, so every step of a turn is
// bounded: what a client, an endpoint or a record can make long goes on in a later turn.
package epoll
