//go:build unix

package main

import (
	"os"
	"syscall"
)

const canExec = true

// turnInto replaces this process by the program at path, with the same arguments.
func turnInto(path string) error { return syscall.Exec(path, os.Args, os.Environ()) }
