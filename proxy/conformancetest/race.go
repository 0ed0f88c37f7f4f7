//go:build race

package conformancetest

// The race detector has every fourth value that is put into a sync.Pool be lost, on purpose.
const poolsLose = true
