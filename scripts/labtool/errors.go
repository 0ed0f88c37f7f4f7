package main

import "errors"

var (
	errUsage      = errors.New("usage")
	errUnanswered = errors.New("not every call was answered")
)
