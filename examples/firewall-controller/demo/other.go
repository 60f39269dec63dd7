//go:build !unix

// The demo needs Unix signals and process groups. The controller itself runs here.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "demo: it needs a Unix system (Linux, macOS, a BSD); this is %s.\n", runtime.GOOS)
	os.Exit(1)
}
