// Package health knows whether an endpoint is offered to clients over one protocol: by the attempts of clients, and by active checks. It
// does not know which endpoint it is about. A [Condition] says what new clients get where the health of all endpoints is known: a [Census] counts them.
package health
