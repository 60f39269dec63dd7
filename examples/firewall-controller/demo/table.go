//go:build unix

package main

import "fmt"

// table is the summary: a row for each step that something came of.
type table struct{ rows []row }

type row struct {
	version  string
	pid      int
	what     string
	requests counts
}

func (t *table) row(version string, pid int, what string, requests counts) {
	t.rows = append(t.rows, row{version, pid, what, requests})
}

func (t *table) print(s *screen) {
	s.say("")
	s.say("%-8s  %8s  %-42s  %s", "version", "pid", "what happened", "requests")
	for _, r := range t.rows {
		s.say("%-8s  %8d  %-42s  %s", r.version, r.pid, r.what, fmt.Sprint(r.requests))
	}
}
