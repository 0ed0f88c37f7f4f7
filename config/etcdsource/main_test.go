package etcdsource_test

import (
	"testing"

	"kubeproxy/config/records/recordstest"
)

func TestMain(m *testing.M) { recordstest.Main(m) }
