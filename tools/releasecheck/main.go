// Releasecheck updates a program from a release as it lies in a directory, the
// way that an operator would: with the selfupdate command, over HTTP, from a bare
// URL and from the layout of a repository's release on GitHub.
//
// It reads what goreleaser left in dist/, checks that every binary is listed in
// checksums.txt and in a file of its own, and that checksums.txt is signed, builds the older version that is to be
// updated, and, in a clean work tree, builds the released programs once more
// somewhere else to see whether the same bytes come out. It ends non-zero if
// anything is not so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
)

func main() {
	repository := flag.String("repository", "..", "the work `directory` that the release was built from")
	dist := flag.String("dist", "../dist", "goreleaser's output `directory`")
	key := flag.String("key", "minisign.pub", "the `file` with the public key that the release is signed for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *repository, *dist, *key); err != nil {
		fmt.Fprintln(os.Stderr, "releasecheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repository, dist, key string) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return err
	}
	rel, err := readDist(dist)
	if err != nil {
		return err
	}
	if err := rel.complete(); err != nil {
		return err
	}
	fmt.Printf("release %s: %d programs, each listed in checksums.txt, which is signed, and in its own .sha256\n", rel.version, len(released))
	if err := reproduce(ctx, repository, rel); err != nil {
		return err
	}

	work, err := os.MkdirTemp("", "releasecheck-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	platform := runtime.GOOS + "-" + runtime.GOARCH
	old := filepath.Join(work, "before")
	if err := build(ctx, repository, "examples/firewall-controller", old, "v0.0.0-before"); err != nil {
		return err
	}
	return update{
		cli:     rel.files["selfupdate-"+platform],
		rel:     rel,
		key:     key,
		asset:   "firewall-controller-" + platform,
		old:     old,
		showing: "-v",
		work:    work,
		log:     os.Stdout,
	}.check(ctx)
}
