// Package try lets a sequence of steps stop at its first error. A function that measures is mostly such steps:
//
//	func cost(pid int) (_ time.Duration, err error) {
//		defer try.Catch(&err)
//		before := try.Get(measure.CPUOf(pid))
//		try.Do(work())
//		return try.Get(measure.CPUOf(pid)) - before, nil
//	}
//
// [Do] and [Get] stop the function by a panic that [Catch] turns into its error; no other panic is caught. They are for
// the goroutine of that function alone, and no function lets the panic out.
package try

import "errors"

// stop is what the panic carries.
type stop struct{ err error }

// Do stops the function if err is not nil.
func Do(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// Get stops the function if err is not nil, and else returns the value.
func Get[T any](value T, err error) T {
	Do(err)
	return value
}

// Get2 is Get for two values.
func Get2[T, U any](one T, other U, err error) (T, U) {
	Do(err)
	return one, other
}

// Catch is deferred: it makes the error that stopped the function the one that it returns.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case stop:
		if *err != nil { // of a function that was deferred
			r.err = errors.Join(r.err, *err)
		}
		*err = r.err
	default:
		panic(r)
	}
}
