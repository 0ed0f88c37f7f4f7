//go:build !unix

package main

import (
	"context"

	"kubeproxy/cmd/internal/connlog"
)

// reopenOnSignal does nothing: there is no signal that could ask for it.
func reopenOnSignal(context.Context, *connlog.Log) {}
