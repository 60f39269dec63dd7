package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// file is one entry of an archive that a test makes.
type file struct {
	name, content string
	kind          byte // of tar; 0 is a regular file
	link          string
	mode          int64
}

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Size: int64(len(f.content)), Mode: f.mode}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write([]byte(f.content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
})

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := encoder()
	require.NoError(t, err)
	return w.EncodeAll(data, nil)
}

func zipOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.mode != 0 {
			h.CreatorVersion, h.ExternalAttrs = 3<<8, uint32(f.mode)<<16 // as Unix has it in st_mode
		}
		e, err := w.CreateHeader(h)
		require.NoError(t, err)
		_, err = e.Write([]byte(f.content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// made is what a real tool makes of files in a directory; the command writes out.
func made(t testing.TB, files map[string]string, command string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
	data, err := os.ReadFile(filepath.Join(dir, "out"))
	require.NoError(t, err)
	return data
}

// changed is data with from, which is in it, replaced everywhere.
func changed(t testing.TB, data []byte, from, to string) []byte {
	t.Helper()
	require.Contains(t, string(data), from)
	return []byte(strings.ReplaceAll(string(data), from, to))
}
