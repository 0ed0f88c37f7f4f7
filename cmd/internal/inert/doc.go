// Package inert writes what terminals only show. What others wrote into records, and what programs answer, is shown in terminals. There a control
// character can be a command, and a bidirectional one can make a text read as another. So none gets there: JSON escapes them, and text shows a
// question mark.
package inert
