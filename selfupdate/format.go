package selfupdate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// checkFormat refuses what this machine's kernel would not execute, from the
// header alone: the format and the architecture, and for ELF a file that is cut
// short or wants an interpreter that is not here. stat is of the real file system.
//
// Formats: ELF (System V ABI, gabi 4.1), Mach-O (mach-o/loader.h, fat.h), PE/COFF
// (Microsoft's PE format). Only the fields that decide are read: stripped and
// packed programs have odd section tables that no kernel looks at.
func checkFormat(f io.ReaderAt, size int64, p Platform, stat func(string) (fs.FileInfo, error)) error {
	head := make([]byte, 64)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	want := map[string]string{"windows": "a PE file", "darwin": "a Mach-O file", "ios": "a Mach-O file"}[p.OS]
	if want == "" {
		want = "an ELF file"
	}
	var got, arch string
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		got = "an ELF file"
		if want == got {
			arch, err = elfArch(f, head, size, stat)
		}
	case isMachO(head):
		got = "a Mach-O file"
		arch, err = machOArch(f, head, p.Arch)
	case bytes.HasPrefix(head, []byte("MZ")):
		got = "a PE file"
		arch, err = peArch(f, head)
	default:
		return fmt.Errorf("%w (%s/%s): it is %s", ErrFormat, p.OS, p.Arch, describe(head))
	}
	switch {
	case got != want:
		return fmt.Errorf("%w (%s/%s): it is %s", ErrFormat, p.OS, p.Arch, got)
	case err != nil:
		return fmt.Errorf("%w (%s/%s): %w", ErrFormat, p.OS, p.Arch, err)
	case arch != p.Arch && knownArch(p.Arch):
		return fmt.Errorf("%w (%s/%s): it is %s for %s", ErrFormat, p.OS, p.Arch, got, arch)
	}
	return nil
}

// describe says what a person would call a file that is no program.
func describe(head []byte) string {
	text := strings.ToLower(strings.TrimSpace(string(head)))
	switch {
	case len(head) == 0:
		return "empty"
	case strings.HasPrefix(text, "<"):
		return "an HTML or XML page"
	case strings.HasPrefix(text, "#!"):
		return "a script"
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "a gzip archive"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "a zip archive"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "a zstd archive"
	case bytes.HasPrefix(head, []byte("\xfd7zXZ")):
		return "an xz archive"
	}
	return "no known format"
}

// elfMachines are the values of e_machine, class and byte order of Go's architectures.
var elfMachines = []struct {
	arch    string
	machine uint16
	bits    byte
	big     bool
}{
	{"386", 3, 32, false}, {"amd64", 62, 64, false}, {"arm", 40, 32, false}, {"arm64", 183, 64, false},
	{"loong64", 258, 64, false}, {"mips", 8, 32, true}, {"mipsle", 8, 32, false}, {"mips64", 8, 64, true},
	{"mips64le", 8, 64, false}, {"ppc64", 21, 64, true}, {"ppc64le", 21, 64, false}, {"riscv64", 243, 64, false},
	{"s390x", 22, 64, true},
}

func knownArch(arch string) bool {
	return slices.ContainsFunc(elfMachines, func(m struct {
		arch    string
		machine uint16
		bits    byte
		big     bool
	}) bool {
		return m.arch == arch
	})
}

func elfArch(f io.ReaderAt, head []byte, size int64, stat func(string) (fs.FileInfo, error)) (string, error) {
	if len(head) < 64 {
		return "", errors.New("its ELF header is cut short")
	}
	var o binary.ByteOrder = binary.LittleEndian
	if head[5] == 2 {
		o = binary.BigEndian
	}
	bits := byte(32)
	if head[4] == 2 {
		bits = 64
	}
	if t := o.Uint16(head[16:]); t != 2 && t != 3 { // ET_EXEC, ET_DYN (position-independent)
		return "", errors.New("it is an ELF file, but no executable")
	}
	arch := fmt.Sprintf("machine %d", o.Uint16(head[18:]))
	for _, m := range elfMachines {
		if m.machine == o.Uint16(head[18:]) && m.bits == bits && m.big == (head[5] == 2) {
			arch = m.arch
		}
	}
	return arch, elfSegments(f, head, o, bits, size, stat)
}

// elfSegments checks the program headers: an ELF file cut in half starts and dies
// by SIGSEGV, one whose interpreter is missing fails with "no such file".
func elfSegments(f io.ReaderAt, head []byte, o binary.ByteOrder, bits byte, size int64, stat func(string) (fs.FileInfo, error)) error {
	off, each, count := int64(o.Uint32(head[28:])), int64(o.Uint16(head[42:])), int64(o.Uint16(head[44:]))
	if bits == 64 {
		off, each, count = int64(o.Uint64(head[32:])), int64(o.Uint16(head[54:])), int64(o.Uint16(head[56:]))
	}
	if each < 32 || bits == 64 && each < 56 || count == 0 || off < 0 || off > size-each*count {
		return errors.New("its ELF program headers are cut short")
	}
	table := make([]byte, each*count) // two 16-bit numbers: below 4 GiB, and within the file
	if _, err := f.ReadAt(table, off); err != nil {
		return errors.New("its ELF program headers are cut short")
	}
	const load, interp = 1, 3
	for ; len(table) > 0; table = table[each:] {
		start, length := uint64(o.Uint32(table[4:])), uint64(o.Uint32(table[16:]))
		if bits == 64 {
			start, length = o.Uint64(table[8:]), o.Uint64(table[32:])
		}
		kind := o.Uint32(table)
		if kind != load && kind != interp {
			continue
		}
		if start > uint64(size) || length > uint64(size)-start {
			return fmt.Errorf("it is cut short: %d bytes, its segments need more", size)
		}
		if kind == interp {
			if err := elfInterpreter(f, int64(start), int64(length), stat); err != nil {
				return err
			}
		}
	}
	return nil
}

func elfInterpreter(f io.ReaderAt, off, length int64, stat func(string) (fs.FileInfo, error)) error {
	if length > 4096 {
		return errors.New("its interpreter's name is too long")
	}
	name := make([]byte, length)
	if _, err := f.ReadAt(name, off); err != nil {
		return err
	}
	path := string(bytes.TrimRight(name, "\x00"))
	if _, err := stat(path); err != nil {
		return fmt.Errorf("its interpreter %+q is not on this machine (a program for another libc?)", clip(path, 80))
	}
	return nil
}

func isMachO(head []byte) bool {
	if len(head) < 16 {
		return false
	}
	switch binary.LittleEndian.Uint32(head) {
	case 0xfeedface, 0xfeedfacf:
		return true
	}
	return binary.BigEndian.Uint32(head) == 0xcafebabe && binary.BigEndian.Uint32(head[4:]) < 32 // a Java class has a larger number here
}

var machOCPU = map[uint32]string{7: "386", 0x01000007: "amd64", 12: "arm", 0x0100000c: "arm64"}

func machOArch(f io.ReaderAt, head []byte, want string) (string, error) {
	if binary.BigEndian.Uint32(head) != 0xcafebabe {
		if binary.LittleEndian.Uint32(head[12:]) != 2 { // MH_EXECUTE
			return "", errors.New("it is a Mach-O file, but no executable")
		}
		return machOCPU[binary.LittleEndian.Uint32(head[4:])], nil
	}
	arches := make([]byte, 20*binary.BigEndian.Uint32(head[4:])) // fewer than 32 entries
	if _, err := f.ReadAt(arches, 8); err != nil {
		return "", errors.New("its list of architectures is cut short")
	}
	var all []string
	for ; len(arches) > 0; arches = arches[20:] {
		arch := machOCPU[binary.BigEndian.Uint32(arches)]
		if arch == want {
			return arch, nil
		}
		all = append(all, arch)
	}
	return strings.Join(all, "+"), nil
}

func peArch(f io.ReaderAt, head []byte) (string, error) {
	if len(head) < 64 {
		return "", errors.New("its DOS header is cut short")
	}
	coff := make([]byte, 24)
	if _, err := f.ReadAt(coff, int64(binary.LittleEndian.Uint32(head[60:]))); err != nil || string(coff[:4]) != "PE\x00\x00" {
		return "", errors.New("it has no PE header")
	}
	const executable, dll = 0x0002, 0x2000
	if c := binary.LittleEndian.Uint16(coff[22:]); c&executable == 0 || c&dll != 0 {
		return "", errors.New("it is a PE file, but no executable")
	}
	machine := binary.LittleEndian.Uint16(coff[4:])
	if arch, ok := map[uint16]string{0x014c: "386", 0x8664: "amd64", 0xaa64: "arm64", 0x01c4: "arm"}[machine]; ok {
		return arch, nil
	}
	return fmt.Sprintf("machine %#x", machine), nil
}
