//go:build !unix

package main

import "context"

// hangups is nothing: there is no signal that could ask for files to be reopened.
type hangups struct{}

func onHangup() hangups { return hangups{} }

func (hangups) handle(context.Context, func(), func()) {}
