//go:build !unix

package main

import "errors"

const canExec = false

func turnInto(string) error { return errors.ErrUnsupported }
