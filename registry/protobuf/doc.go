// Package protobuf reads the fields of a protobuf message one after the other, in place, as Kubernetes stores them.
//
// A [Message] is a value: a copy goes on where the original was. Its first error ends it, and says which field was wrong:
//
//	m := protobuf.Message{Data: value, Path: "object"}
//	for m.Next() {
//		if m.Number == 1 {
//			name = m.Text("metadata.name")
//		}
//	}
//	return m.Err
//
// What the fields mean is none of its business: package registry knows that. Package protowire, below it, knows the encoding. No input
// causes a panic. Lengths are checked, fields that are not asked for are passed over, and groups, which Kubernetes does not use, are errors.
package protobuf
