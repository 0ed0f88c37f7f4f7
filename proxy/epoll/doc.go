// Package epoll is the engine for Linux: a few event loops over bare sockets. One loop carries many clients, so every step of a turn is
// bounded: work that a client, an endpoint or a record can make long continues in a later turn.
package epoll
