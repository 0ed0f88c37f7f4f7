// Package ejection divides the positions of a list into those that are ready and those that are ejected until some time.
//
// An [Index] finds the next position in turn that is ready, by a bitmap, and the ejected one that returns first, by a heap. The
// bitmap costs the same however many positions there are, the heap their logarithm.
package ejection
