package main

import (
	"testing"

	"kubeproxy/cmd/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, "playground", main) }
