//go:build !linux

package selfupdate

import "time"

var processStart = time.Now()

// monotonic is of this process alone; bootID says so.
func monotonic() time.Duration { return time.Since(processStart) }

func bootID() string { return "" }
