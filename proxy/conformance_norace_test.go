//go:build linux && !race

package proxy_test

const poolsLose = false
