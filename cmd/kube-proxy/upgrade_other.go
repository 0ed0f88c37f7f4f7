//go:build !unix

package main

import (
	"context"
	"time"
)

// An upgrade does nothing: there are no such signals on this system.
type upgrade struct{}

func onUpgrade(string) upgrade { return upgrade{} }

func (upgrade) handle(context.Context, func(string)) {}

func (upgrade) failure() (time.Time, error) { return time.Time{}, nil }
