package checksum

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wordings maps the reasons in testdata/cases/index.json to our sentinels.
var wordings = []struct {
	begins string
	want   error
}{
	{"no entry for", ErrNotListed},
	{"entry names", ErrNotListed},
	{"clear-signed file", ErrClearSigned},
	{"not a checksum file (HTML)", ErrHTML},
	{"empty checksum file", ErrEmpty},
	{"conflicting entries", ErrConflict},
	{"malformed digest", ErrMalformed},
}

type wildCase struct {
	File, Asset, Shape string
	Expect             struct{ SHA256, SHA512, Error string }
}

func (c wildCase) parse(data []byte) (*File, error) {
	if filepath.Ext(c.File) == ".txt" && c.File != "44-sri-and-github-digest.txt" {
		return Parse(data)
	}
	return ParseSidecar(data, c.Asset)
}

func wildCases(t testing.TB) (cases []wildCase, data [][]byte) {
	index, err := os.ReadFile("testdata/cases/index.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(index, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		b, err := os.ReadFile(filepath.Join("testdata/cases", c.File))
		require.NoError(t, err)
		data = append(data, b)
	}
	return cases, data
}

func TestCasesFromTheWild(t *testing.T) {
	cases, data := wildCases(t)
	for i, c := range cases {
		t.Run(c.File, func(t *testing.T) {
			f, err := c.parse(data[i])
			var got Digest
			if err == nil {
				got, err = f.Lookup(c.Asset)
			}
			if c.Expect.Error != "" {
				require.ErrorIs(t, err, sentinelFor(t, c.Expect.Error), c.Shape)
				assert.True(t, got.IsZero())
				return
			}
			require.NoError(t, err, c.Shape)
			want, err := ParseDigest(c.Expect.SHA256 + c.Expect.SHA512)
			require.NoError(t, err)
			assert.True(t, want.Equal(got), "%v", got)
		})
	}
}

func sentinelFor(t *testing.T, wording string) error {
	for _, w := range wordings {
		if strings.HasPrefix(wording, w.begins) {
			return w.want
		}
	}
	require.Fail(t, "no sentinel for: "+wording)
	return nil
}
