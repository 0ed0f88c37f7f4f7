// Package admit says who may come in, and what may be dialled: descriptors are taken from a [Budget], UDP sessions from a
// [SessionLimit], and an endpoint must not lead back to a port of this proxy ([OwnPorts]). A [Resolver] looks up the endpoints that are
// host names. All of it is bounded, whatever strangers send.
package admit
