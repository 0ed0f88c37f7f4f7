// Package programtest runs a program of this module as its own process, for the program's tests.
//
// Nothing is built for it. The test binary holds the program already, so [Main] lets it play the
// program when it is called by the program's name, and [Start] calls it so. If the tests run with
// the race detector, the program does too.
package programtest
