// Package enginetest makes what tests of engines need: rotations, claims, and the record of a UDP service that changes.
package enginetest
