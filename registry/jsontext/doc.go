// Package jsontext reads parts of a JSON text in place: the members of an object and the elements of an array, as they are written.
//
// Records change all the time, and package json would leave garbage of each field. So the text is checked once, by [encoding/json.Valid], and
// then cut up without a copy. Errors name the field and what it holds, in one line for an operator (see [Unmarshal]).
package jsontext
