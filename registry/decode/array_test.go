package decode

import (
	"testing"
)

// What is wrong with one of the last elements is found, and told as it would be of the first.
func TestALongArrayIsCheckedToItsEnd(t *testing.T) {
	for list, each := range map[string]string{"endpoints": `"10.0.0.1:80"`, "subsets": `{}`} {
		short, long := `{"`+list+`":[5]}`, fill(4*pieceBytes, `{"`+list+`":[`, each, `,5]}`)
		_, _, want := Decode(endpointsKey, []byte(short))
		if _, _, got := Decode(endpointsKey, []byte(long)); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("a long list of %s ends in a number: %v; of a short one it is said: %v", list, got, want)
		}
	}
}
