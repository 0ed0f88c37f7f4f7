package apisource

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"kubeproxy/config/records"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// An object is what a server says about one record, as far as all versions of the API have it in common. What the record
// says is not read here: [decode.Decode] does that, as it does for etcd.
type object struct {
	meta            // v1beta1 has these in the object itself
	ID       string // v1beta1's name
	Metadata struct {
		meta
		Name string
	}
}

// meta is what is common to all objects.
type meta struct {
	Namespace         string
	UID               string
	ResourceVersion   json.RawMessage
	CreationTimestamp string
}

// read reads the members that are known. Of the wrong type they count as missing: decode.Decode says what is wrong.
func (o *object) read(text []byte) error {
	err := json.Unmarshal(text, o)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// A version is a resourceVersion: it orders the writes of one resource. Zero is none.
type version int64

// parseVersion reads a version, which v1beta1 spells as a number and v1 as a string.
func parseVersion(text []byte) (version, error) {
	digits := strings.Trim(string(text), `"`)
	if digits == "" || digits == "null" {
		return 0, nil
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, remote.Because(Unable, errors.New("resourceVersion "+registry.Quote(digits)+" is not a number"))
	}
	return version(n), nil
}

// String gives the version as URLs have it.
func (v version) String() string { return strconv.FormatInt(int64(v), 10) }

// version returns the version of the object.
func (o *object) version() (version, error) {
	if o.Metadata.ResourceVersion != nil {
		return parseVersion(o.Metadata.ResourceVersion)
	}
	return parseVersion(o.ResourceVersion)
}

// key returns the key that the record would have in a registry. An object without a name gets a key that cannot be one of
// a record, with which [decode.Decode] says so.
func (o *object) key(prefix string) string {
	namespace := cmp.Or(o.Metadata.Namespace, o.Namespace, registry.DefaultNamespace)
	return prefix + namespace + "/" + cmp.Or(o.Metadata.Name, o.ID)
}

// created returns a number that stands for one life of the object: what is created again after a deletion has another uid, and
// before there were uids, another time of creation. Zero means that it is not known: v0.4.4 forgets the time with each PUT.
//
// The numbers are greater than any version, so that they are not taken for one.
func (o *object) created() int64 {
	uid := cmp.Or(o.Metadata.UID, o.UID)
	if uid == "" {
		text := cmp.Or(o.Metadata.CreationTimestamp, o.CreationTimestamp)
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return 0
		}
		uid = text
	}
	sum := fnv.New64a()
	sum.Write([]byte(uid))
	return int64(sum.Sum64()>>2 | 1<<62)
}

// A collection is the kind of the objects of one resource, and where their records belong.
type collection struct {
	kind       string
	apiVersion string
	prefix     string // of keys
}

// record makes a version of one object as it was received. long says that the text is only the beginning of it.
//
// Lists leave out kind and apiVersion of their items, and watches put them wherever they like; so each object is written
// anew, with both, and its members in the order of their names. Then an object has the same bytes wherever it came from.
func (c *collection) record(text []byte, long bool) (records.Version, error) {
	var o object
	if long {
		o.readBeginning(text)
		return c.version(&o, bytes.Clone(text)) // too long for a record: it is rejected, unread
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil || o.read(text) != nil {
		return records.Version{}, errSyntax("an object begins with " + registry.Quote(string(text[:min(len(text), 64)])))
	}
	for name, value := range map[string]string{"kind": c.kind, "apiVersion": c.apiVersion} {
		if _, ok := members[name]; !ok {
			members[name] = json.RawMessage(strconv.Quote(value))
		}
	}
	value, err := json.Marshal(members)
	if err != nil {
		return records.Version{}, errSyntax(registry.Quote(err.Error()))
	}
	return c.version(&o, value)
}

func (c *collection) version(o *object, value []byte) (records.Version, error) {
	v, err := o.version()
	return records.Version{Key: []byte(o.key(c.prefix)), Value: value, Created: o.created(), Revision: int64(v)}, err
}

// readBeginning reads what there is at the beginning of an object that is not there whole: in v1 the metadata are.
func (o *object) readBeginning(text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return
	}
	members := make(map[string]json.RawMessage)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			break
		}
		if key, ok := name.(string); ok {
			members[key] = raw
		}
	}
	if whole, err := json.Marshal(members); err == nil {
		_ = o.read(whole) // it has what can be read
	}
}
