//go:build !linux

package main

import "errors"

func runConntrack([]string) error { return errors.ErrUnsupported }
