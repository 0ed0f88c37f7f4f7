// Package history remembers the last changes of what a node serves, whoever made them: a registry, or an operator by the control socket. Each
// is one line of the log as well, as far as the log limiter lets it pass.
package history
