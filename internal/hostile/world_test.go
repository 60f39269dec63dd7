package hostile

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"
	"github.com/metal-stack/selfreconcile/selfupdate"
	"github.com/metal-stack/selfreconcile/signature"
	githubsource "github.com/metal-stack/selfreconcile/source/github"
	httpsource "github.com/metal-stack/selfreconcile/source/http"
)

const (
	// marker is in every hostile text. None of it may come out again.
	marker = "\x1b[31mMARK\x07\x00\xff\xfe\u202e\nMARK"

	secret = "s3cr3t" // every credential of ours, and the query that the caller gave
	signed = "s1gned" // the query of the storage host's URLs

	version = "v2.0.0"
	maxSize = 8 << 20
)

// The hosts. All but the first four are foreign: no credential is for them.
const (
	home    = "releases.example.com"
	api     = "api.example.com"
	web     = "web.example.com"
	storage = "storage.example.net"
)

// foreign reports whether a host that was dialled is none of those of a release.
func foreign(addr string) bool {
	host, port, _ := net.SplitHostPort(addr)
	ours := host == home || host == api || host == web || host == storage
	return !ours || port != "80" && port != "443"
}

// world is a release, the servers that it is on, and the program that is to be
// updated to it.
type world struct {
	*network
	row   row
	on    atomic.Bool // whether the servers are hostile
	files map[string][]byte

	dir    string
	target string
	log    bytes.Buffer
	source func(context.Context) (selfupdate.Release, error)
	u      *selfupdate.Updater
}

func newWorld(t *testing.T, r row, secure, sockets bool) *world {
	w := &world{row: r, network: newNetwork(t, secure, sockets)}
	w.on.Store(true)
	w.network.serve = w.respond
	if r.certificate != nil {
		hostile, good := r.certificate(t, w.network), w.network.certificate
		w.network.certificate = func() *tls.Certificate {
			if w.on.Load() {
				return hostile
			}
			return good()
		}
	}
	if r.greet != nil {
		w.network.greet = func(c net.Conn) bool { return w.on.Load() && r.greet(c) }
	}
	before := http.DefaultTransport
	http.DefaultTransport = w.transport()
	t.Cleanup(func() { http.DefaultTransport = before })

	trust := w.publish(t)
	w.install(t)
	cfg := selfupdate.Config{
		Target: w.target, Current: "v1.0.0", Trust: trust, Asset: "app", MaxSize: maxSize,
		// What is no program must be refused for what it is, not for its header.
		AllowAnyFormat: true, AllowOtherProgram: true,
		Log: slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if r.trust != unsigned && r.trust != pinned {
		cfg.Sums = "checksums.txt"
	}
	if r.config != nil {
		r.config(&cfg)
	}
	var err error
	w.u, err = selfupdate.New(cfg)
	require.NoError(t, err)
	w.source = w.release(t, cfg.Log)
	return w
}

// install puts v1.0.0 there, through the library, so that there is a record.
func (w *world) install(t *testing.T) {
	w.dir = memoryDir(t)
	w.target = filepath.Join(w.dir, "app")
	require.NoError(t, os.WriteFile(w.target, []byte("by hand"), 0o750))
	old := []byte("the program v1.0.0")
	_, err := selfupdate.Apply(t.Context(), bytes.NewReader(old), selfupdate.Options{
		Target: w.target, Digest: digest(old), Version: "v1.0.0", AllowAnyFormat: true,
	})
	require.NoError(t, err)
}

// memoryDir is a directory that needs no disk: the fsyncs are nothing of this test's.
func memoryDir(t *testing.T) string {
	if fi, err := os.Stat("/dev/shm"); err != nil || !fi.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "hostile-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func digest(data []byte) checksum.Digest {
	h := checksum.SHA256.New()
	_, _ = h.Write(data)
	return checksum.Of(checksum.SHA256, h)
}

// program is what is released, large enough not to be read at once.
var program = bytes.Repeat([]byte("the program v2.0.0\n"), 16<<10)

// publish makes the files of the release and returns the trust of the row.
func (w *world) publish(t *testing.T) selfupdate.Trust {
	sums := fmt.Sprintf("%s  app\n", digest(program).Hex())
	both := "# version: " + version + "\n" + sums
	w.files = map[string][]byte{"app": program, "app.sha256": []byte(sums), "checksums.txt": []byte(both)}
	mini, ec := newMinisigner(t), newECDSASigner(t)
	w.files["checksums.txt.minisig"] = mini.sign(both, "version:"+version)
	w.files["checksums.txt.sig"] = ec.sign(both)
	if w.row.resign != nil {
		w.row.resign(w, mini, ec)
	}
	switch w.row.trust {
	case pinned:
		return selfupdate.Pinned(digest(program))
	case byMinisign:
		return selfupdate.Signed(mini.verifier(t))
	case byECDSA:
		return selfupdate.Signed(ec.verifier(t))
	case byEither:
		return selfupdate.Signed(mini.verifier(t), ec.verifier(t))
	}
	return selfupdate.UnsignedChecksum("test")
}

func (w *world) scheme() string {
	if w.secure {
		return "https"
	}
	return "http"
}

// release returns how the row finds its release, with every credential that the
// source takes.
func (w *world) release(t *testing.T, log *slog.Logger) func(context.Context) (selfupdate.Release, error) {
	if w.row.from == byURL {
		s := httpsource.New(httpsource.Options{
			AllowHTTP: !w.secure,
			Header:    http.Header{"X-Api-Key": {secret}, "X-Session-Id": {secret}},
			Credentials: map[string]http.Header{w.scheme() + "://" + home: {
				"Authorization": {"Bearer " + secret}, "Private-Token": {secret}, "Cookie": {"c=" + secret}, "X-Anything": {secret},
			}},
			Log: log,
		})
		return func(context.Context) (selfupdate.Release, error) {
			return s.URL(version, w.scheme()+"://user:"+secret+"@"+home+"/app/"+version+"/app?sig="+secret)
		}
	}
	opts := githubsource.Options{
		APIURL: w.scheme() + "://" + api, WebURL: w.scheme() + "://" + web, AllowHTTP: !w.secure, Log: log,
	}
	name := version
	switch w.row.from {
	case byAPI:
		opts.Token = secret
	case byNewest:
		opts.Token, name = secret, ""
	case byList:
		opts.List = true
	}
	s, err := githubsource.NewWithOptions("acme", "app", opts)
	require.NoError(t, err)
	return func(ctx context.Context) (selfupdate.Release, error) { return s.Release(ctx, name) }
}

// apply is what a program does to update itself.
func (w *world) apply(ctx context.Context) (selfupdate.Result, error) {
	rel, err := w.source(ctx)
	if err != nil {
		return selfupdate.Result{}, err
	}
	return w.u.Apply(ctx, rel)
}

// respond is every host.
func (w *world) respond(x *exchange) {
	if w.on.Load() && w.row.do != nil && w.row.do(w, x) {
		return
	}
	host, _, _ := net.SplitHostPort(x.host)
	switch {
	case host == web:
		x.answer(302, nil, "Location: "+w.scheme()+"://"+storage+"/"+x.file()+"?X-Sig="+signed)
	case strings.HasPrefix(x.r.URL.Path, "/repos/"):
		w.answerAPI(x)
	default:
		w.file(x)
	}
}

func (w *world) file(x *exchange) {
	data, ok := w.files[x.file()]
	if !ok {
		x.answer(404, []byte(marker))
		return
	}
	x.content(data)
}

// answerAPI is GitHub's.
func (w *world) answerAPI(x *exchange) {
	rest := strings.TrimPrefix(x.r.URL.Path, "/repos/acme/app/releases")
	rel := w.listed()
	if w.on.Load() && w.row.json != nil {
		w.row.json(rel)
	}
	var found any
	switch {
	case rest == "":
		found = []any{rel}
	case rest == "/tags/"+version:
		found = rel
	case rest == "/7/assets":
		found = rel["assets"]
	case strings.HasPrefix(rest, "/assets/"):
		for _, a := range w.listed()["assets"].([]map[string]any) {
			if rest == fmt.Sprintf("/assets/%v", a["id"]) {
				x.answer(302, nil, fmt.Sprintf("Location: %s://%s/%s?X-Sig=%s", w.scheme(), storage, a["name"], signed))
				return
			}
		}
	}
	if found == nil {
		x.answer(404, []byte(`{"message":"\u001b[31m"}`))
		return
	}
	data, err := json.Marshal(found)
	if err != nil {
		panic(err)
	}
	x.answer(200, data, "ETag: "+etag(data))
}

// listed is the release as the API lists it.
func (w *world) listed() map[string]any {
	var assets []map[string]any
	for i, name := range []string{"app", "app.sha256", "checksums.txt", "checksums.txt.minisig", "checksums.txt.sig"} {
		assets = append(assets, map[string]any{
			"id": i + 1, "name": name, "state": "uploaded", "size": len(w.files[name]), "digest": digest(w.files[name]).String(),
			"browser_download_url": w.scheme() + "://" + web + "/acme/app/releases/download/" + version + "/" + url.PathEscape(name),
		})
	}
	return map[string]any{"id": 7, "tag_name": version, "assets": assets, "published_at": "1999-01-01T00:00:00Z"}
}

// minisigner and ecdsaSigner are publishers.
type minisigner struct {
	public  minisign.PublicKey
	private minisign.PrivateKey
}

func newMinisigner(t *testing.T) minisigner {
	public, private, err := minisign.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return minisigner{public, private}
}

func (s minisigner) sign(text, comment string) []byte {
	r := minisign.NewReader(strings.NewReader(text))
	if _, err := r.Read(make([]byte, len(text)+1)); err != nil {
		panic(err)
	}
	return r.SignWithComments(s.private, comment, "comment")
}

func (s minisigner) verifier(t *testing.T) selfupdate.Verifier {
	text, err := s.public.MarshalText()
	require.NoError(t, err)
	v, err := signature.Minisign(string(text))
	require.NoError(t, err)
	return v
}

type ecdsaSigner struct{ *ecdsa.PrivateKey }

func newECDSASigner(t *testing.T) ecdsaSigner {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return ecdsaSigner{key}
}

func (s ecdsaSigner) sign(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	der, err := ecdsa.SignASN1(rand.Reader, s.PrivateKey, sum[:])
	if err != nil {
		panic(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(der))
}

func (s ecdsaSigner) verifier(t *testing.T) selfupdate.Verifier {
	der, err := x509.MarshalPKIXPublicKey(s.Public())
	require.NoError(t, err)
	v, err := signature.ECDSA(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.NoError(t, err)
	return v
}
