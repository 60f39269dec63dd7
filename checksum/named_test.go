package checksum

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseNamed(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name    string
		content string
		file    string
		chosen  bool
		want    error
	}{
		{"a bare digest beside its asset", hex, "app.sha256", false, nil},
		{"with another ending", hex, "app.SHA256SUM", false, nil},
		{"a bare digest beside another asset", hex, "other.sha256", false, ErrBareDigest},
		{"the same, chosen for this one", hex, "other.sha256", true, nil},
		{"a bare digest in a list", hex, "checksums.txt", false, ErrBareDigest},
		{"the same, chosen", hex, "checksums.txt", true, ErrBareDigest},
		{"a digest with its algorithm, chosen", "sha256:" + hex + "\n", "digest.txt", true, nil},
		{"the same, not chosen", "sha256:" + hex, "digest.txt", false, ErrBareDigest},
		{"two of them are no one's", "sha256:" + hex + "\nsha256:" + hex, "digest.txt", true, ErrBareDigest},
		{"a list", hex + "  app\n", "checksums.txt", false, nil},
		{"a sidecar that names its asset", hex + "  bin/app\n", "app.sha256", false, nil},
		{"the ending alone is no name", hex, ".sha256", false, ErrBareDigest},
		{"no name at all", hex, "", false, ErrBareDigest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseNamed([]byte(tt.content), tt.file, "app", tt.chosen)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			d, err := f.Lookup("app")
			require.NoError(t, err)
			assert.Equal(t, "sha256:"+hex, d.String())
		})
	}
}
