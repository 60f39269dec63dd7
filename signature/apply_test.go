package signature

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

// shelf is a server: what is at which path.
type shelf map[string]string

func (s shelf) release(t testing.TB, version, asset string) selfupdate.Release {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := s[path.Base(r.URL.Path)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(data))
	}))
	t.Cleanup(srv.Close)
	return httpsource.Release(version, srv.URL+"/"+version+"/"+asset)
}

// listed is the checksum file of app with that content.
func listed(content string) string { return digestOf(checksum.SHA256, content).Hex() + "  app\n" }

// published is a release as its publisher makes it, the version bound.
func published(t testing.TB, s signer, version string) shelf {
	t.Helper()
	program := "the program " + version
	if s.kind == "minisign" {
		sums := listed(program)
		return shelf{"app": program, "checksums.txt": sums, "checksums.txt.minisig": s.sign(t, sums, "-t", "version:"+version)}
	}
	sums := "# version: " + version + "\n" + listed(program)
	return shelf{"app": program, "checksums.txt": sums, "checksums.txt.sig": s.sign(t, sums)}
}

// tree is every file below dir with its content, without the lock files.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "lock") {
			return err
		}
		data, err := os.ReadFile(p)
		fi, ferr := d.Info()
		all[p] = fmt.Sprintf("%v %x", fi, sha256.Sum256(data))
		return errors.Join(err, ferr)
	}))
	return all
}

func updater(t testing.TB, path string, trust selfupdate.Trust, change ...func(*selfupdate.Config)) *selfupdate.Updater {
	t.Helper()
	cfg := selfupdate.Config{Target: path, Trust: trust, AllowAnyFormat: true}
	for _, c := range change {
		c(&cfg)
	}
	u, err := selfupdate.New(cfg)
	require.NoError(t, err)
	return u
}

// installed is a program that was installed from a signed release.
func installed(t testing.TB, s signer) string {
	t.Helper()
	target := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(target, []byte("by hand"), 0o755))
	_, err := updater(t, target, selfupdate.Signed(s.verifier(t))).Apply(t.Context(), published(t, s, "v1").release(t, "v1", "app"))
	require.NoError(t, err)
	return target
}

func TestApply(t *testing.T) {
	for _, kind := range []string{"minisign", "openssl"} {
		t.Run(kind, func(t *testing.T) {
			ours, other := newSigner(t, kind), newSigner(t, kind)
			name, id := "checksums.txt.sig", func() string { return "ecdsa-p256 " + opensslID(t, ours) }
			if kind == "minisign" {
				name, id = "checksums.txt.minisig", func() string { return "minisign " + keyID(t, ours) }
			}
			signed := selfupdate.Signed(ours.verifier(t))
			with := func(changes ...string) shelf {
				s := published(t, ours, "v2")
				for i := 0; i < len(changes); i += 2 {
					s[changes[i]] = changes[i+1]
				}
				return s
			}
			unbound := with("checksums.txt", listed("the program v2"))
			unbound[name] = ours.sign(t, unbound["checksums.txt"])
			missing := with()
			delete(missing, name)
			old := published(t, ours, "v1.9")
			for _, tt := range []struct {
				name   string
				trust  selfupdate.Trust
				shelf  shelf
				want   error
				policy string // what follows the key
			}{
				{"good", signed, with(), nil, ", as version v2"},
				{"key in rotation", selfupdate.Signed(other.verifier(t), ours.verifier(t)), with(), nil, ", as version v2"},
				{"no version, allowed", signed.AllowUnboundVersion(), unbound, nil, ", for any version"},
				{"a version, none needed", signed.AllowUnboundVersion(), with(), nil, ", as version v2"},

				{"missing", signed, missing, selfupdate.ErrNotFound, ""},
				{"captive portal", signed, with(name, "<html>\x1b[2Jlog in"), ErrMalformed, ""},
				{"another's key", signed, published(t, other, "v2"), map[string]error{"minisign": ErrWrongKey, "openssl": ErrInvalid}[kind], ""},
				{"checksum file changed", signed, with("app", "evil", "checksums.txt", listed("evil")), ErrInvalid, ""},
				{"program changed", signed, with("app", "the program v3"), selfupdate.ErrDigestMismatch, ""},
				{"no version", signed, unbound, selfupdate.ErrVersionNotBound, ""},
				{"an old release again", signed, old, selfupdate.ErrVersionMismatch, ""},
				{"an old release again, none needed", signed.AllowUnboundVersion(), old, selfupdate.ErrVersionMismatch, ""},
				{"a second, forged checksum file first", signed, with("app", "evil", "app.sha256", listed("evil")), selfupdate.ErrDigestMismatch, ""},
				{"that, and no signature anywhere", signed, shelf{"app": "evil", "app.sha256": listed("evil"), "checksums.txt": listed("evil")}, selfupdate.ErrNotFound, ""},
				{"that, beside the right program", signed, with("app.sha256", listed("evil")), nil, ", as version v2"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					target := installed(t, ours)
					before := tree(t, filepath.Dir(target))
					u := updater(t, target, tt.trust)
					res, err := u.Apply(t.Context(), tt.shelf.release(t, "v2", "app"))
					if tt.want == nil {
						require.NoError(t, err)
						assert.Equal(t, "the program v2", read(t, filepath.Dir(target), "app"))
						assert.Equal(t, "signed by "+id()+tt.policy, res.Policy)
						st, err := u.Status()
						require.NoError(t, err)
						assert.Equal(t, res.Policy, st.Current.Policy)
						return
					}
					require.ErrorIs(t, err, tt.want)
					plain(t, err, "log in", "v1.9", "evil")
					after := tree(t, filepath.Dir(target))
					if tt.want == selfupdate.ErrDigestMismatch { // remembered, so as not to hammer
						record := filepath.Join(filepath.Dir(target), ".app.d", "state.json")
						delete(before, record)
						delete(after, record)
					}
					assert.Equal(t, before, after)
				})
			}
		})
	}
}

// A digest alone is signed for no name: not for this program, when the publisher's key
// signs others too, and not for the version that stands in the asset's name.
func TestApplySignedDigestAlone(t *testing.T) {
	for _, kind := range []string{"minisign", "openssl"} {
		t.Run(kind, func(t *testing.T) {
			s := newSigner(t, kind)
			ending := map[string]string{"minisign": ".minisig", "openssl": ".sig"}[kind]
			old := digestOf(checksum.SHA256, "the program v1.9").Hex()
			server := "# version: v2\n" + digestOf(checksum.SHA256, "the server v2").Hex()
			for _, tt := range []struct {
				name, asset, template, content, sums string
				want                                 error
			}{
				{"another program", "app", "", "the server v2", server, selfupdate.ErrNoChecksum},
				{"another program, with the algorithm", "app", "", "the server v2", "# version: v2\nsha256:" + strings.Fields(server)[3], selfupdate.ErrNoChecksum},
				{"named as it is", "app", "", "the server v2", server + "  server", selfupdate.ErrNoChecksum},
				{"an old version", "app-v2", "{name}-{version}", "the program v1.9", old, selfupdate.ErrNoChecksum},
				{"with a name", "app-v2", "{name}-{version}", "the program v2", digestOf(checksum.SHA256, "the program v2").Hex() + "  app-v2", nil},
			} {
				t.Run(tt.name, func(t *testing.T) {
					rel := shelf{tt.asset: tt.content, tt.asset + ".sha256": tt.sums, tt.asset + ".sha256" + ending: s.sign(t, tt.sums)}
					target := installed(t, s)
					for _, trust := range []selfupdate.Trust{selfupdate.Signed(s.verifier(t)).AllowUnboundVersion(), selfupdate.Signed(s.verifier(t))} {
						u := updater(t, target, trust, func(c *selfupdate.Config) { c.Asset = tt.template })
						_, err := u.Apply(t.Context(), rel.release(t, "v2", tt.asset))
						require.ErrorIs(t, err, tt.want)
						want := "the program v1"
						if tt.want == nil {
							want = tt.content
						}
						assert.Equal(t, want, read(t, filepath.Dir(target), "app"))
					}
				})
			}
		})
	}
}

// A program that a signature without a version let in is not good enough for a
// policy that wants one: then the signature is asked for again.
func TestApplyStricterTrust(t *testing.T) {
	s := newSigner(t, "minisign")
	sums := listed("the program v2")
	rel := shelf{"app": "the program v2", "checksums.txt": sums, "checksums.txt.minisig": s.sign(t, sums)}.release(t, "v2", "app")
	target := installed(t, s)
	lax, strict := selfupdate.Signed(s.verifier(t)).AllowUnboundVersion(), selfupdate.Signed(s.verifier(t))
	for _, want := range []selfupdate.Outcome{selfupdate.Updated, selfupdate.UpToDate} {
		res, err := updater(t, target, lax).Apply(t.Context(), rel)
		require.NoError(t, err)
		assert.Equal(t, want, res.Outcome)
	}
	_, err := updater(t, target, strict).Apply(t.Context(), rel)
	require.ErrorIs(t, err, selfupdate.ErrVersionNotBound)
}

// What a key let in that is not trusted any more, because it leaked perhaps, is no
// "nothing to do": the release must be signed with one that is.
func TestApplyKeyTakenOut(t *testing.T) {
	for _, kind := range []string{"minisign", "openssl"} {
		t.Run(kind, func(t *testing.T) {
			leaked, ours := newSigner(t, kind), newSigner(t, kind)
			files := published(t, leaked, "v2")
			rel := files.release(t, "v2", "app")
			target := installed(t, leaked)
			for _, want := range []selfupdate.Outcome{selfupdate.Updated, selfupdate.UpToDate} {
				res, err := updater(t, target, selfupdate.Signed(leaked.verifier(t))).Apply(t.Context(), rel)
				require.NoError(t, err)
				assert.Equal(t, want, res.Outcome)
			}
			both, one := selfupdate.Signed(ours.verifier(t), leaked.verifier(t)), selfupdate.Signed(ours.verifier(t))
			delete(files, "checksums.txt") // whatever asks does not get far
			res, err := updater(t, target, both).Apply(t.Context(), rel)
			require.NoError(t, err)
			assert.Equal(t, selfupdate.UpToDate, res.Outcome)
			_, err = updater(t, target, one).Apply(t.Context(), rel)
			require.ErrorIs(t, err, selfupdate.ErrNotFound)

			maps.Copy(files, published(t, leaked, "v2"))
			_, err = updater(t, target, one).Apply(t.Context(), rel)
			require.ErrorIs(t, err, selfupdate.ErrSignature)

			maps.Copy(files, published(t, ours, "v2"))
			res, err = updater(t, target, one).Apply(t.Context(), rel)
			require.NoError(t, err)
			assert.Equal(t, selfupdate.UpToDate, res.Outcome, "the bytes are the same")
			assert.Contains(t, res.Policy, ours.verifier(t).(interface{ Keys() []string }).Keys()[0])
		})
	}
}

// Nobody signed the checksum file: whatever it says beside the one digest that the
// asset's signature is of binds and decides nothing.
func TestApplyAssetSigned(t *testing.T) {
	s := newSigner(t, "openssl")
	signed := selfupdate.Signed(s.verifier(t))
	const program, evil = "the program v2", "evil"
	sig := s.sign(t, program)
	line := func(content, name string) string {
		return digestOf(checksum.SHA256, content).Hex() + "  " + name + "\n"
	}
	for _, tt := range []struct {
		name, asset, template string
		trust                 selfupdate.Trust
		shelf                 shelf
		want                  error
	}{
		{"no version", "app", "", signed, shelf{"app": program, "checksums.txt": line(program, "app"), "app.sig": sig}, selfupdate.ErrVersionNotBound},
		{"the unsigned file states it", "app", "", signed, shelf{"app": program, "checksums.txt": "# version: v2\n" + line(program, "app"), "app.sig": sig}, selfupdate.ErrVersionNotBound},
		{"the asset's name has it", "app-v2", "{name}-{version}", signed, shelf{"app-v2": program, "checksums.txt": line(program, "app-v2"), "app-v2.sig": sig}, selfupdate.ErrVersionNotBound},
		{"allowed", "app", "", signed.AllowUnboundVersion(), shelf{"app": program, "checksums.txt": line(program, "app"), "app.sig": sig}, nil},
		{"allowed, the unsigned file states another", "app", "", signed.AllowUnboundVersion(), shelf{"app": program, "checksums.txt": "# version: v3\n" + line(program, "app"), "app.sig": sig}, nil},
		{"another program", "app", "", signed.AllowUnboundVersion(), shelf{"app": evil, "checksums.txt": line(evil, "app"), "app.sig": sig}, ErrInvalid},
		{"another program than listed", "app", "", signed.AllowUnboundVersion(), shelf{"app": evil, "checksums.txt": line(program, "app"), "app.sig": sig}, selfupdate.ErrDigestMismatch},
		{"another program by SHA-512", "app", "", signed.AllowUnboundVersion(), shelf{
			"app": evil, "app.sig": sig,
			"checksums.txt": line(program, "app") + digestOf(checksum.SHA512, evil).Hex() + "  app\n",
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := installed(t, s)
			u := updater(t, target, tt.trust, func(c *selfupdate.Config) { c.Asset = tt.template })
			res, err := u.Apply(t.Context(), tt.shelf.release(t, "v2", tt.asset))
			if tt.name == "another program by SHA-512" {
				require.Error(t, err)
			} else {
				require.ErrorIs(t, err, tt.want)
			}
			if err == nil {
				assert.Equal(t, program, read(t, filepath.Dir(target), "app"))
				assert.Equal(t, "signed by ecdsa-p256 "+opensslID(t, s)+", for any version", res.Policy)
				return
			}
			assert.Equal(t, "the program v1", read(t, filepath.Dir(target), "app"))
		})
	}
}
