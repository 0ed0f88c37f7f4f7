// Package wheel is a timer wheel: it says which of many members is due next. Setting, stopping and finding the next one take
// constant time, and no timer needs memory of its own.
package wheel
