package traffic

import "testing"

func TestEveryDropReasonHasANameAndACode(t *testing.T) {
	seen := make(map[string]bool)
	for _, why := range DropReasons() {
		for _, name := range []string{why.String(), "code " + why.Code()} {
			if name == "" || name == "code " || seen[name] {
				t.Errorf("reason %d is called %q", why, name)
			}
			seen[name] = true
		}
	}
}
