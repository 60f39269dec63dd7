// Fuzzkeep adds what Go's fuzz cache has for a target to the file in which it is kept:
//
//	go run ./cmd/internal/fuzzkeep PACKAGE_DIRECTORY CACHE_DIRECTORY FuzzName
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

// most is the largest input that is kept, in bytes: a large one is slow in every
// later run and rarely more interesting than what it grew from.
const most = 4 << 10

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "fuzzkeep PACKAGE_DIRECTORY CACHE_DIRECTORY FuzzName")
		os.Exit(2)
	}
	file, err := corpus.File(os.Args[1], os.Args[3])
	if err == nil {
		err = keep(file, filepath.Join(os.Args[2], os.Args[3]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzzkeep:", err)
		os.Exit(1)
	}
}

func keep(file, cache string) error {
	kept, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	known := map[string]bool{}
	for _, text := range corpus.Split(kept) {
		known[text] = true
	}
	found, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		return err
	}
	had := len(known)
	for _, name := range found { // their names are their digests: always the same order
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if len(text) > most || !bytes.HasPrefix(text, []byte(corpus.Header)) || known[string(text)] {
			continue
		}
		known[string(text)] = true
		kept = append(kept, text...)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	fmt.Printf("%s: %d inputs, %d of them new\n", file, len(known), len(known)-had)
	return os.WriteFile(file, kept, 0o644)
}
