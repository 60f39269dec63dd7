//go:build unix

package main

import (
	"fmt"
	"strconv"
)

// table is the summary: a row for each step that something came of.
type table struct{ rows []row }

type row struct {
	version  string
	pid      int // 0: none
	what     string
	requests counts
}

func (t *table) row(version string, pid int, what string, requests counts) {
	t.rows = append(t.rows, row{version, pid, what, requests})
}

func (t *table) print(s *screen) {
	s.say("")
	s.say("%-8s  %8s  %-50s  %s", "version", "pid", "what happened", "requests")
	for _, r := range t.rows {
		pid := "-"
		if r.pid != 0 {
			pid = strconv.Itoa(r.pid)
		}
		s.say("%-8s  %8s  %-50s  %s", r.version, pid, r.what, fmt.Sprint(r.requests))
	}
}
