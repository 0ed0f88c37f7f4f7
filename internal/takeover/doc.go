// Package takeover moves what a process serves to its successor, so that nobody notices an upgrade. It carries [Item] values between
// two processes, and does not know what they mean.
package takeover
