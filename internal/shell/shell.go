// Package shell writes commands that a person can type.
package shell

import (
	"runtime"
	"strings"
)

// Word returns s as one word of the shell of this system: sh, or on Windows
// PowerShell and cmd for what is a file's name.
func Word(s string) string { return word(s, runtime.GOOS == "windows") }

func word(s string, windows bool) string {
	special := strings.ContainsFunc(s, func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
		return !plain && !(windows && r == '\\')
	})
	switch {
	case s != "" && !special:
		return s
	case windows:
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
