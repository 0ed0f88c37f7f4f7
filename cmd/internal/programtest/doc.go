// Package programtest runs a program of this module as its own process, for the program's tests, and checks its man page.
//
// It builds nothing. The test binary contains the program: [Main] runs the program when the binary is started under the program's
// name, and [Start] starts it so. If the tests run with the race detector, the program does too.
package programtest
