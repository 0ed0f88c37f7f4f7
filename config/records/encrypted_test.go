package records

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry/decode"
)

// An API server that encrypts at rest encrypts every value of a kind: one line says what to do, and not one for each key.
func TestEncryptedValuesTakeOneLine(t *testing.T) {
	log := recordstest.LogSince(t)
	s := New(decode.Decoder{})
	s.Put(Version{Key: []byte(recordstest.Spec("plain")), Value: []byte(recordstest.Port(80)), Created: 2, Revision: 2})
	for i := range 50 {
		s.Put(Version{Key: []byte(recordstest.Spec(fmt.Sprint("a", i))), Value: fmt.Appendf(nil, "k8s:enc:aescbc:v1:key1:%d", i), Created: 3, Revision: 3})
	}
	want := []string{`E values are encrypted at rest, for the API server alone: use -master in place of -etcd_servers; the first is that of key "/registry/services/specs/a0", at revision 3`}
	if got := recordstest.LogLines(log()); !slices.Equal(got, want) {
		t.Errorf("the log reads\n%q\nwant\n%q", got, want)
	}
	var st config.Status
	s.Describe(&st, time.Now())
	if st.Rejected != 50 || !st.Rejections[0].Encrypted || st.Rejections[0].Reason != decode.ErrEncrypted.Error() {
		t.Errorf("%d rejected, the first of them %+v; want 50 that say that they are encrypted", st.Rejected, st.Rejections[0])
	}
}
