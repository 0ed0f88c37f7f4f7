// Package apitest has a network in memory for tests of an API server's clients, which can be broken.
package apitest
