//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// server serves releases in the layout of images.metal-stack.io and writes down
// every request.
type server struct {
	*http.Server
	url string

	mu     sync.Mutex
	files  map[string][]byte // by path
	log    []string          // the path of every request
	broken string            // the path that is answered with other bytes, once
}

// counts is how often something was asked for, whatever the answer.
type counts struct{ programs, sums int }

func (c counts) String() string { return fmt.Sprintf("%d program, %d .sha256", c.programs, c.sums) }

func serve(ctx context.Context, releases map[string]release) (*server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String(), files: map[string][]byte{}}
	for v, r := range releases {
		s.files[assetPath(v)] = r.data
		s.files[assetPath(v)+".sha256"] = []byte(r.sha256 + "  bin/firewall-controller\n")
	}
	s.Server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // until Close
	return s, nil
}

func assetPath(version string) string {
	return "/firewall-controller/" + version + "/firewall-controller"
}

func (s *server) assetURL(version string) string { return s.url + assetPath(version) }

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.URL.Path)
	data, ok := s.files[r.URL.Path]
	if r.URL.Path == s.broken {
		data, s.broken = flipped(data), ""
	}
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// flipped is data with one bit changed in its middle: same length, same header.
func flipped(data []byte) []byte {
	other := bytes.Clone(data)
	other[len(other)/2] ^= 1
	return other
}

// corrupt makes the server send other bytes for a version once, with the right sum.
func (s *server) corrupt(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = assetPath(version)
}

// asked counts the requests so far.
func (s *server) asked() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c counts
	for _, path := range s.log {
		if strings.HasSuffix(path, ".sha256") {
			c.sums++
		} else {
			c.programs++
		}
	}
	return c
}

func (c counts) minus(o counts) counts { return counts{c.programs - o.programs, c.sums - o.sums} }
