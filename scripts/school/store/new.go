package store

import "fmt"

// Kinds are the names of the kinds of stores.
const (
	InFiles = "files"
	InEtcd  = "etcd"
	InEtcd2 = "etcd2"
)

// New returns a store of a kind that is empty. etcd finds the program of an etcd. Servers listen at ports between low and high.
func New(kind string, etcd func() (string, error), low, high uint16) (Store, error) {
	switch kind {
	case InFiles:
		return newFiles()
	case InEtcd:
		program, err := etcd()
		if err != nil {
			return nil, err
		}
		return newEtcd(program, low, high)
	case InEtcd2:
		return newEtcd2(low, high)
	}
	return nil, fmt.Errorf("%.40q is no kind of registry: want %s, %s or %s", kind, InFiles, InEtcd, InEtcd2)
}
