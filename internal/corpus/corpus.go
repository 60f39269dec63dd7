// Package corpus keeps what fuzzing found interesting: one file for each fuzz target,
// corpus/PACKAGE/FuzzName, instead of thousands of small ones. It is Go's own encoding of
// inputs, one after the other. Each plain "go test" runs them all; "make fuzz" adds to
// them. The directory is a module of its own, so that no importer downloads it. An input
// that failed stays in the package's testdata/fuzz, where Go puts it.
package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Header is the first line of each input.
const Header = "go test fuzz v1\n"

// File is where the inputs of a target are, of the package in a directory; "" where
// there is no such place: in an importer's copy of the module.
func File(dir, target string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "corpus", "go.mod")); err == nil {
			rel, err := filepath.Rel(root, dir)
			return filepath.Join(root, "corpus", rel, target), err
		}
		if root == filepath.Dir(root) {
			return "", nil
		}
	}
}

// Add gives the kept inputs to a fuzz target.
func Add(f *testing.F) {
	f.Helper()
	file, err := File(".", f.Name())
	if err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return // of a new target, until "make fuzz" ran
	}
	if err != nil {
		f.Fatal(err)
	}
	for i, text := range Split(data) {
		args, err := decode(text)
		if err != nil {
			f.Fatalf("%s: input %d: %v", file, i+1, err)
		}
		f.Add(args...)
	}
}

// Split returns the inputs of a file, each with its header. A value is one line, so
// that none can hold a header.
func Split(data []byte) []string {
	var all []string
	for _, text := range bytes.Split(append([]byte("\n"), data...), []byte("\n"+Header)) {
		if text = bytes.TrimSuffix(text, []byte("\n")); len(text) > 0 {
			all = append(all, Header+string(text)+"\n")
		}
	}
	return all
}

// decode returns the values of an input: one a line, as Go conversions of literals.
func decode(text string) ([]any, error) {
	var args []any
	for line := range bytes.Lines([]byte(text[len(Header):])) {
		e, err := parser.ParseExpr(string(line))
		if err != nil {
			return nil, err
		}
		v, err := value(e)
		if err != nil {
			return nil, err
		}
		args = append(args, v)
	}
	return args, nil
}

// value knows the types that the targets here have.
func value(e ast.Expr) (any, error) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, errors.New("no conversion")
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return nil, errors.New("no literal")
	}
	switch lit.Kind {
	case token.STRING:
		s, err := strconv.Unquote(lit.Value)
		if _, isSlice := call.Fun.(*ast.ArrayType); isSlice {
			return []byte(s), err
		}
		return s, err
	case token.CHAR: // of a byte
		r, _, _, err := strconv.UnquoteChar(lit.Value[1:len(lit.Value)-1], '\'')
		return byte(r), err
	}
	return nil, fmt.Errorf("a %v is not known here", lit.Kind)
}
