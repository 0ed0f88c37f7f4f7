// Package recordtext writes what is in force of a service as records, and compares a refused value with it, for pages that operators read.
package recordtext
