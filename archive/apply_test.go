package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// system returns a program of this machine: the format is checked.
func system(t testing.TB, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	require.NoError(t, err)
	data, err := os.ReadFile(p)
	require.NoError(t, err)
	return string(data)
}

// served counts the requests for one archive and its checksum file.
func served(t testing.TB, asset string, data []byte) (base string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch path.Base(r.URL.Path) {
		case asset:
			_, _ = w.Write(data)
		case asset + ".sha256":
			sum := sha256.Sum256(data)
			_, _ = fmt.Fprintf(w, "%s  %s\n", hex.EncodeToString(sum[:]), asset)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/{version}/", requests
}

// opened counts how often an archive was opened.
type opened struct {
	Unpacker
	n int
}

func (o *opened) Unpack(ctx context.Context, archive io.ReaderAt, size int64, name string) (io.ReadCloser, error) {
	o.n++
	return o.Unpacker.Unpack(ctx, archive, size, name)
}

// target is a program in a directory of its own, by an operator.
func target(t testing.TB) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(p, []byte(system(t, "true")), 0o755))
	require.NoError(t, os.Chmod(p, 0o751))
	return p
}

func release(t testing.TB, base string) selfupdate.Release {
	t.Helper()
	source, err := httpsource.New(httpsource.Options{AllowHTTP: true}).Template(httpsource.Template{Bases: []string{base}})
	require.NoError(t, err)
	rel, err := source.Release(t.Context(), "v2")
	require.NoError(t, err)
	return rel
}

func TestApply(t *testing.T) {
	v2 := system(t, "false")
	app := file{name: "app-v2/app", content: v2, mode: 0o6777}
	for name, tt := range map[string]struct {
		template string
		data     []byte
	}{
		"tar.gz":  {"{name}-{version}-{os}-{arch}.tar.gz", gz(t, tarOf(t, file{name: "app-v2/", kind: tar.TypeDir}, app))},
		"tgz":     {"{name}.tgz", gz(t, tarOf(t, app))},
		"tar.zst": {"{name}{ext}.tar.zst", zst(t, tarOf(t, app))},
		"zip":     {"{name}.zip", zipOf(t, file{name: "app-v2/app", content: v2, mode: 0o106777})},
		"gz":      {"{name}{ext}.gz", gz(t, []byte(v2))},
		"zst":     {"{name}.zst", zst(t, []byte(v2))},
	} {
		t.Run(name, func(t *testing.T) {
			p := target(t)
			asset, err := selfupdate.ExpandAsset(tt.template, "app", "v2", selfupdate.Host())
			require.NoError(t, err)
			base, requests := served(t, asset, tt.data)
			sum := sha256.Sum256(tt.data)
			digest, err := checksum.ParseDigest(hex.EncodeToString(sum[:]))
			require.NoError(t, err)
			for _, want := range []selfupdate.Outcome{selfupdate.Updated, selfupdate.UpToDate} {
				u, err := selfupdate.New(selfupdate.Config{
					Target: p, Trust: selfupdate.UnsignedChecksum("test"), Asset: tt.template, Unpack: Unpacker{},
				})
				require.NoError(t, err)
				requests.Store(0)
				res, err := u.Apply(t.Context(), release(t, base))
				require.NoError(t, err)
				assert.Equal(t, want, res.Outcome)
				assert.Equal(t, want == selfupdate.UpToDate, requests.Load() == 0, "%d requests", requests.Load())
				st, err := u.Status()
				require.NoError(t, err)
				assert.Equal(t, digest, st.Current.Published, "the archive's")
			}
			got, err := os.ReadFile(p)
			require.NoError(t, err)
			assert.Equal(t, v2, string(got))
			fi, err := os.Stat(p)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o751), fi.Mode(), "the target's, not the archive's")
		})
	}
}

func TestApplyRefused(t *testing.T) {
	v2 := system(t, "false")
	app := file{name: "app", content: v2}
	big := file{name: "big", content: string(make([]byte, 8<<20))}
	good := gz(t, tarOf(t, app))
	for name, tt := range map[string]struct {
		data, served []byte // served: when it is other than what the checksum is of
		want         error
		opened       int
	}{
		"good":               {good, nil, nil, 1},
		"other digest":       {good, gz(t, tarOf(t, app, app)), selfupdate.ErrDigestMismatch, 0},
		"two":                {gz(t, tarOf(t, app, app)), nil, selfupdate.ErrFormat, 1},
		"link":               {gz(t, tarOf(t, file{name: "app", kind: tar.TypeSymlink, link: "/bin/sh"})), nil, selfupdate.ErrFormat, 1},
		"..":                 {gz(t, tarOf(t, file{name: "../app", content: v2})), nil, selfupdate.ErrFormat, 1},
		"truncated":          {good[:len(good)-9], nil, selfupdate.ErrFormat, 1},
		"corrupt":            {append(bytes.Clone(good[:len(good)-8]), make([]byte, 8)...), nil, selfupdate.ErrFormat, 1},
		"program too large":  {gz(t, tarOf(t, file{name: "app", content: v2 + big.content})), nil, selfupdate.ErrTooLarge, 1},
		"bomb":               {gz(t, []byte(big.content+big.content)), nil, selfupdate.ErrTooLarge, 1},
		"too much beside it": {gz(t, tarOf(t, app, big, big)), nil, selfupdate.ErrTooLarge, 1},
		"zip bomb":           {zipOf(t, file{name: "app", content: v2 + big.content}), nil, selfupdate.ErrTooLarge, 1},
		"no program":         {gz(t, tarOf(t, file{name: "app", content: "<html>"})), nil, selfupdate.ErrFormat, 1},
		"no archive":         {[]byte(v2), nil, selfupdate.ErrFormat, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := target(t)
			base, _ := served(t, "app.tgz", tt.data)
			if tt.served != nil {
				base, _ = served(t, "app.tgz", tt.served)
			}
			unpacker := &opened{Unpacker: Unpacker{MaxUnpacked: 10 << 20}}
			sum := sha256.Sum256(tt.data)
			pinned, err := checksum.ParseDigest(hex.EncodeToString(sum[:]))
			require.NoError(t, err)
			u, err := selfupdate.New(selfupdate.Config{Target: p, Trust: selfupdate.Pinned(pinned), Asset: "app.tgz", Unpack: unpacker, MaxSize: 4 << 20})
			require.NoError(t, err)
			_, err = u.Apply(t.Context(), release(t, base))
			assert.Equal(t, tt.opened, unpacker.n)
			if tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, selfupdate.Refused, selfupdate.ClassOf(err))
			var e *selfupdate.Error
			require.ErrorAs(t, err, &e)
			assert.NotEqual(t, "", e.Step)
			got, err := os.ReadFile(p)
			require.NoError(t, err)
			assert.Equal(t, system(t, "true"), string(got))
			assert.Empty(t, left(t, filepath.Dir(p)))
		})
	}
}

// left is what an update left in a directory beside the target, its record and the locks.
func left(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir(), name == "app", name == "state.json", strings.HasSuffix(name, "lock"):
		default:
			all = append(all, name)
		}
		return nil
	}))
	return all
}

// All that is ever allocated for 100 MiB is far less than that, so the peak is too.
func TestMemory(t *testing.T) {
	const size = 100 << 20
	make100 := "head -c 100M /dev/zero >app; "
	for name, tt := range map[string]struct {
		data []byte
		most uint64
	}{
		"gz":             {made(t, nil, make100+"gzip -1 <app >out"), 1 << 20},
		"tar.gz":         {made(t, nil, make100+"tar -cf - app | gzip -1 >out"), 1 << 20},
		"zip":            {made(t, nil, make100+"zip -q1 x app; mv x.zip out"), 1 << 20},
		"zst":            {made(t, nil, make100+"zstd -q -3 app -o out"), 16 << 20},
		"zst --ultra":    {made(t, nil, make100+"zstd -q --ultra -20 --zstd=strategy=1 app -o out"), 48 << 20},
		"tar.zst -19":    {made(t, nil, make100+"tar -cf - app | zstd -q -19 --zstd=strategy=1 >out"), 16 << 20},
		"10,000 entries": {zipOf(t, append(numbered(9_999), file{name: "app", content: string(make([]byte, size))})...), 16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := Unpacker{}.Unpack(t.Context(), bytes.NewReader(tt.data), int64(len(tt.data)), "app")
			require.NoError(t, err)
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
			require.NoError(t, errors.Join(err, r.Close()))
			runtime.ReadMemStats(&after)
			assert.EqualValues(t, size, n)
			used := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d KiB allocated for an archive of %d KiB", used>>10, len(tt.data)>>10)
			assert.Less(t, used, tt.most)
		})
	}
}

func numbered(n int) []file {
	all := make([]file, n)
	for i := range all {
		all[i].name = fmt.Sprint("directory/", i)
	}
	return all
}
