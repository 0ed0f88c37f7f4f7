package remote

import "errors"

// A Failure is an error whose cause is known. C is the type of the causes of one source.
type Failure[C any] struct {
	Cause C
	Err   error
}

// Because returns err with its cause.
func Because[C any](cause C, err error) error { return Failure[C]{Cause: cause, Err: err} }

// Error implements error. The cause is not part of the text.
func (f Failure[C]) Error() string { return f.Err.Error() }

// Unwrap returns the error without its cause.
func (f Failure[C]) Unwrap() error { return f.Err }

// CauseOf returns the cause of an error; ok is false if it is not known.
func CauseOf[C any](err error) (cause C, ok bool) {
	f, ok := errors.AsType[Failure[C]](err)
	return f.Cause, ok
}
