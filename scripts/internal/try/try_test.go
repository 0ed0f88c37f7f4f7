package try

import (
	"errors"
	"strconv"
	"testing"
)

func sum(texts ...string) (n int, err error) {
	defer Catch(&err)
	for _, text := range texts {
		n += Get(strconv.Atoi(text))
	}
	return n, nil
}

func TestTheFirstErrorStopsTheFunction(t *testing.T) {
	if n, err := sum("1", "2"); n != 3 || err != nil {
		t.Errorf("%d, %v; want 3", n, err)
	}
	if n, err := sum("1", "x", "y"); n != 1 || !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("%d, %v; want to stop at x", n, err)
	}
}

func TestAnotherPanicIsNotCaught(t *testing.T) {
	defer func() {
		if r := recover(); r != "oh" {
			t.Errorf("recovered %v; want the panic of the function", r)
		}
	}()
	_ = func() (err error) {
		defer Catch(&err)
		panic("oh")
	}()
}
