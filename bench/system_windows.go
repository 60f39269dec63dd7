package main

import "time"

// A file that was opened for reading can't be flushed here.
const flushOptional = true

func cpuTime() time.Duration { return 0 }

func peakMemory() int64 { return 0 }
