package registry

// A Warning is something odd in a record that is used all the same. It is one line, safe to log.
type Warning string
