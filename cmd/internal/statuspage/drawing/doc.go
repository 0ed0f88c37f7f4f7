// Package drawing draws what the page of a service shows beside its tables: where clients go, and the last five minutes in lines. It computes places
// and texts, of which the templates of the page make SVG.
package drawing
