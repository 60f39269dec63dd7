package shell

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWord(t *testing.T) {
	for s, want := range map[string]string{
		"/usr/local/bin/app": "/usr/local/bin/app",
		"my app":             "'my app'",
		"it's":               `'it'\''s'`,
		"a;b":                "'a;b'",
		"":                   "''",
		"$HOME":              "'$HOME'",
		"é":                  "'é'",
		`a\b`:                `'a\b'`,
	} {
		assert.Equal(t, want, word(s, false))
	}
	for s, want := range map[string]string{
		`C:\app.exe`:               `C:\app.exe`,
		`C:\Program Files\app.exe`: `"C:\Program Files\app.exe"`,
		"":                         `""`,
	} {
		assert.Equal(t, want, word(s, true))
	}
}
