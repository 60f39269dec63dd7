//go:build unix

package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const columns = 100

// screen is where everything is printed, by several goroutines, in lines of at most
// a hundred columns.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
	short []string // pairs: text, what is printed for it

	verbose bool            // print everything
	heard   map[string]bool // events of this step, which are said once
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, start: time.Now(), heard: map[string]bool{}}
}

// abbreviate prints name for text from now on.
func (s *screen) abbreviate(text, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = append(s.short, text, name)
}

func (s *screen) say(format string, args ...any) { s.print("", fmt.Sprintf(format, args...)) }

// tell is a line of somebody: when, who, what.
func (s *screen) tell(who, format string, args ...any) {
	at := time.Since(s.start).Seconds()
	s.print(fmt.Sprintf("  %5.1fs %-11s ", at, who), fmt.Sprintf(format, args...))
}

// detail is a line of somebody that tells nothing new to who knows the story.
func (s *screen) detail(who, format string, args ...any) {
	if s.verbose {
		s.tell(who, format, args...)
	}
}

var (
	eventLine = regexp.MustCompile(`^(?:WARN |ERROR )?(?:[a-z ]+ http://\S+: )?(.*) event=(\w+)$`)

	// What is not here is said by the guard, by the supervisor, or by a check.
	events = map[string]bool{"Updated": true, "Confirmed": true, "SpecUnread": true, "UpdateRefused": true, "UpdateRejected": true, "Allowed": true}
)

// log prints a line of a program's log; when not everything is wanted, an event that
// tells the story, once a step.
func (s *screen) log(who, text string) {
	if s.verbose {
		s.tell(who, "%s", text)
		return
	}
	m := eventLine.FindStringSubmatch(text)
	if m == nil || !events[m[2]] {
		return
	}
	s.mu.Lock()
	said := s.heard[m[2]]
	s.heard[m[2]] = m[2] != "Updated"
	s.mu.Unlock()
	if !said {
		s.tell(who, "%s: %s", m[2], m[1])
	}
}

// step begins a part of the story.
func (s *screen) step(n int, title string) {
	s.mu.Lock()
	clear(s.heard)
	s.mu.Unlock()
	s.say("")
	s.say("%d. %s", n, title)
}

// fine is something that was checked and that a line before says already.
func (s *screen) fine(format string, args ...any) {
	if s.verbose {
		s.ok(format, args...)
	}
}

// ok is something that was announced and has been checked.
func (s *screen) ok(format string, args ...any) { s.print("    ✓ ", fmt.Sprintf(format, args...)) }

var longHex = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)

func (s *screen) print(head, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = strings.NewReplacer(s.short...).Replace(text)
	text = longHex.ReplaceAllString(text, "$1…")
	width := columns - utf8.RuneCountInString(head)
	for i, line := range wrap(text, width) {
		if i > 0 {
			head = strings.Repeat(" ", utf8.RuneCountInString(head))
		}
		fmt.Fprintln(s.out, strings.TrimRight(head+line, " "))
	}
}

// wrap breaks text at blanks into lines of at most width characters; a word that
// is longer is broken where it must be.
func wrap(text string, width int) []string {
	var lines []string
	rest := []rune(text)
	for len(rest) > width {
		at := width
		for i := width; i > 0; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, string(rest[:at]))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}
