// Package measure is what every program that measures needs: processes that end with whoever started
// them, an etcd and a bare watcher of it, what processes and the machine have used, and statistics
// that assume nothing about noise.
package measure
