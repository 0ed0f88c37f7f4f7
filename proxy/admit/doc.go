// Package admit decides which clients are admitted and which endpoints are dialled. A [Budget] grants descriptors, and a [SessionLimit]
// UDP sessions. [OwnPorts] refuses endpoints that lead back to a port of this proxy. A [Resolver] looks up endpoints that are host names.
// The memory of each is bounded, whatever strangers send.
package admit
