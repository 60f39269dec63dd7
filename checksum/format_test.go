package checksum

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	d, long := mustDigest(t, hex64), mustDigest(t, hex128)
	for _, tt := range []struct {
		name string
		in   Entry
		want string
	}{
		{"plain", Entry{Name: "app", Digest: d}, hex64 + "  app\n"},
		{"SHA-512", Entry{Name: "dist/my app", Digest: long}, hex128 + "  dist/my app\n"},
		{"line feed", Entry{Name: "a\nb\\c", Digest: d}, `\` + hex64 + `  a\nb\\c` + "\n"},
		{"carriage return", Entry{Name: "a\r", Digest: d}, `\` + hex64 + `  a\r` + "\n"},
		{"backslash alone", Entry{Name: `a\nb`, Digest: d}, hex64 + `  a\nb` + "\n"},
		{"star", Entry{Name: "*a", Digest: d}, hex64 + " **a\n"},
		{"looks like a digest", Entry{Name: alt64, Digest: d}, hex64 + " *" + alt64 + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Format([]Entry{tt.in})
			assert.Equal(t, tt.want, string(got))
			f, err := Parse(got)
			require.NoError(t, err)
			tt.in.Line = 1
			assert.Equal(t, []Entry{tt.in}, f.Entries())
		})
	}
}

func TestFormatLeavesOut(t *testing.T) {
	assert.Empty(t, Format([]Entry{{}, {Name: "app"}, {Digest: mustDigest(t, hex64)}}))
}
