// Package pipes lends the pipes through which splice(2) moves bytes from one socket to another. It bounds how many there are.
package pipes
