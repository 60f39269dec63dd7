package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// notes keeps what the library warns of until the tool has said its own, and of
// that only what the tool would not say.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (n *notes) WithAttrs([]slog.Attr) slog.Handler               { return n }
func (n *notes) WithGroup(string) slog.Handler                    { return n }

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	if !slices.ContainsFunc([]string{"damaged", "no way back", "could not be"}, func(s string) bool { return strings.Contains(r.Message, s) }) {
		return nil
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += "; " + a.Key + ": " + a.Value.String()
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, strings.ReplaceAll(line, "\n", "; "))
	return nil
}

// take returns the lines and forgets them.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

func (e *env) sayNotes() {
	for _, line := range e.notes.take() {
		e.notef("%s", line)
	}
}
