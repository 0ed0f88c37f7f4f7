//go:build !race

package conformancetest

const poolsLose = false
