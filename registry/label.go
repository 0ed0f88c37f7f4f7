package registry

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// maxLabelled is how many bytes a label may have without being cut: twice any namespace and name that a master accepts.
const maxLabelled = 2 * maxPlain

// Label gives the name as metrics and the connection log spell it: always "namespace/name", and else
// as [Label] has it.
func (n Name) Label() string { return Label(n.Namespace + "/" + n.Name) }

// Label makes outside data fit to identify something where programs read: a text of printable characters
// stays as it is; any other is quoted, and a long one cut. Two texts never have the same label, even if
// they are cut: then a hash of the whole makes the difference.
func Label(s string) string {
	if len(s) > maxLabelled {
		h := fnv.New64a()
		h.Write([]byte(s))
		return fmt.Sprintf("%s#%016x", Quote(s), h.Sum64())
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == '"' || r == '\ufffd' || !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
