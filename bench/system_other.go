//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"
)

func settle() {}

func fileSystem(string) string { return "unknown file system" }

func (b bench) stable(context.Context, string) error {
	fmt.Fprintln(b.out, "\nwhat a call costs while nothing is on trial is measured on Linux only")
	return nil
}

func (bench) powercut(context.Context, string) error {
	return errors.New("the power is cut on Linux only")
}

func callMany(job) error { return errors.ErrUnsupported }

func cutPower(job) error { return errors.ErrUnsupported }
