package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

const platform = runtime.GOOS + "-" + runtime.GOARCH

// server is a web server and a GitHub on the loopback. A path says how it behaves:
// /files/MODE/PROGRAM/FILE.
type server struct {
	*httptest.Server
	tls     *httptest.Server // the same by https
	began   chan struct{}    // one for each download that waits
	proceed chan struct{}    // lets one of the mode waits end

	mu     sync.Mutex
	counts map[string]int
}

func startServer() *server {
	s := &server{began: make(chan struct{}, 16), proceed: make(chan struct{}), counts: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v3/", s.api)
	mux.HandleFunc("/acme/{repo}/releases/download/{tag}/{name}", s.download)
	mux.HandleFunc("/files/{mode}/{program}/{file}", s.file)
	s.Server = httptest.NewServer(mux)
	s.tls = httptest.NewUnstartedServer(mux)
	s.tls.Config.ErrorLog = log.New(io.Discard, "", 0) // whoever does not trust it
	s.tls.StartTLS()
	return s
}

func (s *server) close() {
	for _, server := range []*httptest.Server{s.Server, s.tls} {
		server.CloseClientConnections()
		server.Close()
	}
}

func (s *server) add(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind]++
	s.counts["all"]++
}

func (s *server) count(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[kind]
}

func (s *server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

func (s *server) await() {
	select {
	case <-s.began:
	case <-time.After(20 * time.Second):
	}
}

// file serves a program and, after its name, .sha256 or .sha512; checksums.txt only
// in the mode list.
func (s *server) file(w http.ResponseWriter, r *http.Request) {
	s.add("file")
	program, file := programs[r.PathValue("program")], r.PathValue("file")
	ext := path.Ext(file)
	isSum := ext == ".sha256" || ext == ".sha512" || ext == ".txt"
	switch mode := r.PathValue("mode"); {
	case mode == "missing", program == nil, file == "SHA256SUMS",
		mode == "nosums" && isSum,
		mode == "list" && ext != ".txt" && isSum, mode != "list" && ext == ".txt",
		mode == "512" && ext == ".sha256":
		http.NotFound(w, r)
	case mode == "broken":
		http.Error(w, "out of order", http.StatusInternalServerError)
	case mode == "limited":
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	case mode == "clear": // from https to http
		http.Redirect(w, r, s.URL+strings.Replace(r.URL.Path, "/clear/", "/ok/", 1), http.StatusFound)
	case mode == "endless" && isSum:
		_, _ = w.Write(bytes.Repeat([]byte("#\n"), 1<<20))
	case mode == "html" && isSum:
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!DOCTYPE html><html>not here</html>")
	case mode == "wrong" && isSum:
		_, _ = fmt.Fprintf(w, "%s  app\n", hex256(programs["v5"]))
	case isSum:
		_, _ = fmt.Fprint(w, sumsOf(program, strings.TrimSuffix(file, ext), ext))
	case mode == "slow":
		s.begin(w, program)
		<-r.Context().Done()
	case mode == "waits":
		s.begin(w, program)
		select {
		case <-s.proceed:
			_, _ = w.Write(program[firstPart:])
		case <-r.Context().Done():
		}
	case mode == "steady":
		steady(w, program)
	default:
		w.Header().Set("Content-Length", strconv.Itoa(len(program)))
		_, _ = w.Write(program)
	}
}

func sumsOf(program []byte, name, ext string) string {
	switch ext {
	case ".sha512":
		return hex512(program) + "  bin/" + name + "\n"
	case ".txt":
		return hex256([]byte("other")) + "  app-other\n" + hex256(program) + "  app\n"
	}
	return hex256(program) + "  bin/" + name + "\n" // the shape of the first user
}

const firstPart = 64 << 10

// begin sends a part and says so.
func (s *server) begin(w http.ResponseWriter, program []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(program)))
	_, _ = w.Write(program[:firstPart])
	_ = http.NewResponseController(w).Flush()
	s.began <- struct{}{}
}

// steady takes about half a second.
func steady(w http.ResponseWriter, program []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(program)))
	const parts = 10
	for i := range parts {
		_, _ = w.Write(program[len(program)*i/parts : len(program)*(i+1)/parts])
		_ = http.NewResponseController(w).Flush()
		time.Sleep(50 * time.Millisecond)
	}
}

// repository is one at the fake GitHub: assets by tag, each with its content.
type repository struct {
	releases []fakeRelease
	private  bool // 404 without the token
	limited  bool // the API refuses
	status   int  // what the API answers with, if not 0
	hidden   bool // nothing can be downloaded but by the API's address
}

type fakeRelease struct {
	tag        string
	preRelease bool
	assets     []fakeAsset
}

type fakeAsset struct{ name, program string }

const token = "secret-token"

// withSums adds the checksum file of each program.
func withSums(assets ...fakeAsset) []fakeAsset {
	for _, a := range assets {
		assets = append(assets, fakeAsset{a.name + ".sha256", a.program})
	}
	return assets
}

func asset(program, kind string) []fakeAsset {
	return withSums(fakeAsset{program + "-" + platform, kind}, fakeAsset{program + "-plan9-mips", "v5"})
}

var repositories = map[string]repository{
	"app": {releases: []fakeRelease{
		{tag: "v1.0.0", assets: asset("app", "v1")},
		{tag: "v1.2.0", assets: asset("app", "v2")},
		{tag: "v1.10.0", assets: asset("app", "v3")},
		{tag: "v2.0.0-rc.1", preRelease: true, assets: asset("app", "v4")},
		{tag: "nosums", assets: []fakeAsset{{"app-" + platform, "v5"}}},
	}},
	"metalctl": {releases: []fakeRelease{{tag: "v0.18.7", assets: asset("metalctl", "v2")}}},
	"tool": {releases: []fakeRelease{{tag: "v1.0.0", assets: withSums(
		fakeAsset{"tool-" + platform, "v2"}, fakeAsset{"tool-server-" + platform, "v3"})}}},
	"private": {private: true, releases: []fakeRelease{{tag: "v1.0.0", assets: asset("app", "v2")}}},
	"limited": {limited: true},
	"401":     {status: http.StatusUnauthorized},
	"403":     {status: http.StatusForbidden},
	"hidden":  {hidden: true, releases: []fakeRelease{{tag: "v1.0.0", assets: asset("app", "v2")}}},
}

func content(a fakeAsset) []byte {
	if name, ok := strings.CutSuffix(a.name, ".sha256"); ok {
		return []byte(sumsOf(programs[a.program], name, ".sha256"))
	}
	return programs[a.program]
}

func (s *server) download(w http.ResponseWriter, r *http.Request) {
	s.add("web")
	repo := repositories[r.PathValue("repo")]
	if repo.hidden && r.URL.Query().Get("signed") == "" || repo.private {
		http.NotFound(w, r)
		return
	}
	for _, rel := range repo.releases {
		for _, a := range rel.assets {
			if rel.tag == r.PathValue("tag") && a.name == r.PathValue("name") {
				_, _ = w.Write(content(a))
				return
			}
		}
	}
	http.NotFound(w, r)
}

// api answers /api/v3/repos/acme/REPO/releases, below it /tags/TAG and
// /assets/NUMBER, as GitHub does.
func (s *server) api(w http.ResponseWriter, r *http.Request) {
	s.add("api")
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/v3/repos/acme/"), "/"), "/")
	repo, ok := repositories[parts[0]]
	authorized := r.Header.Get("Authorization") == "Bearer "+token
	switch {
	case repo.limited:
		w.Header().Set("X-RateLimit-Limit", "60")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
		http.Error(w, `{"message":"API rate limit exceeded"}`, http.StatusForbidden)
	case repo.status != 0:
		http.Error(w, `{"message":"Bad credentials"}`, repo.status)
	case !ok, repo.private && !authorized:
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
	case len(parts) == 4 && parts[2] == "assets":
		s.apiAsset(w, r, repo, parts[3])
	default:
		s.apiReleases(w, r, parts, repo)
	}
}

func (s *server) apiReleases(w http.ResponseWriter, r *http.Request, parts []string, repo repository) {
	list := []any{}
	for i, rel := range repo.releases {
		assets := []any{}
		for j, a := range rel.assets {
			download := fmt.Sprintf("%s/acme/%s/releases/download/%s/%s", s.URL, parts[0], rel.tag, a.name)
			if repo.hidden {
				download += "?signed=1"
			}
			assets = append(assets, map[string]any{
				"id": 100*i + j + 1, "name": a.name, "state": "uploaded", "size": len(content(a)),
				"digest": "sha256:" + hex256(content(a)), "browser_download_url": download,
			})
		}
		v := map[string]any{
			"id": i + 1, "tag_name": rel.tag, "prerelease": rel.preRelease, "assets": assets,
			"published_at": "2026-01-02T03:04:05Z",
		}
		if len(parts) == 4 && parts[2] == "tags" && parts[3] == rel.tag {
			_ = json.NewEncoder(w).Encode(v)
			return
		}
		list = append(list, v)
	}
	if len(parts) != 2 {
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *server) apiAsset(w http.ResponseWriter, r *http.Request, repo repository, number string) {
	n, _ := strconv.Atoi(number)
	i, j := (n-1)/100, (n-1)%100
	if r.Header.Get("Accept") != "application/octet-stream" || i >= len(repo.releases) || j >= len(repo.releases[i].assets) {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content(repo.releases[i].assets[j]))
}
