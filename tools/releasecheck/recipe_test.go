package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// recipe is what .goreleaser.yaml and docs/publishing.md say about signing.
type recipe struct {
	Archives []struct{ ID string }
	Checksum struct {
		NameTemplate string `yaml:"name_template"`
		Algorithm    string
		IDs          []string `yaml:"ids"`
	}
	Signs []struct {
		Artifacts, Cmd   string
		Args             []string
		Signature, Stdin string
	}
}

func readRecipe(t *testing.T, text []byte) recipe {
	t.Helper()
	var r recipe
	must(t, yaml.Unmarshal(text, &r))
	return r
}

func ours(t *testing.T) recipe {
	t.Helper()
	b, err := os.ReadFile("../../.goreleaser.yaml")
	must(t, err)
	return readRecipe(t, b)
}

// sign signs a file with the command of the recipe, as goreleaser calls it.
func (r recipe) sign(t *testing.T, file, version, key, password string) (signature string) {
	t.Helper()
	env := map[string]string{"MINISIGN_KEY": key}
	if password != "" {
		env["MINISIGN_PASSWORD"] = password
	}
	s := r.Signs[0]
	vars := map[string]string{"artifact": file}
	apply := func(text string) string {
		text = os.Expand(text, func(name string) string { return vars[name] })
		tmpl, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
			"envOrDefault": func(name, or string) string {
				if v, ok := env[name]; ok {
					return v
				}
				return or
			},
		}).Parse(text)
		must(t, err)
		var b strings.Builder
		must(t, tmpl.Execute(&b, map[string]any{"Env": env, "Version": strings.TrimPrefix(version, "v"), "Tag": version}))
		return b.String()
	}
	vars["signature"] = apply(s.Signature)
	var args []string
	for _, a := range s.Args {
		args = append(args, apply(a))
	}
	cmd := exec.CommandContext(t.Context(), s.Cmd, args...)
	cmd.Stdin = strings.NewReader(apply(s.Stdin))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return vars["signature"]
}

// TestRecipe: what docs/publishing.md shows is what this repository does, and lacks
// nothing of what it warns about.
func TestRecipe(t *testing.T) {
	blocks := published(t)
	shown, done := readRecipe(t, []byte(blocks["yaml"][0])), ours(t)
	if a, b := fmt.Sprint(shown.Checksum, shown.Signs), fmt.Sprint(done.Checksum, done.Signs); a != b {
		t.Errorf("docs/publishing.md has\n%s\nand .goreleaser.yaml\n%s", a, b)
	}
	if len(done.Signs) != 1 || len(done.Checksum.IDs) == 0 {
		t.Fatalf("%d signatures over a checksum file of %v", len(done.Signs), done.Checksum.IDs)
	}
	for _, id := range done.Checksum.IDs {
		if !strings.Contains(fmt.Sprint(done.Archives), "{"+id+"}") {
			t.Errorf("checksum.ids has %q, which is no archive's", id)
		}
	}
}

// published returns the code blocks of docs/publishing.md by their language.
func published(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/publishing.md")
	must(t, err)
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	return blocks
}

// TestPublishing runs the commands of docs/publishing.md, all of them and in their
// order, with a key that has a password, and signs once more as goreleaser does.
func TestPublishing(t *testing.T) {
	const password, version, asset = "correct horse", "v2.5.1", "app-linux-amd64"
	work := t.TempDir()
	must(t, build(t.Context(), "../..", "cmd/selfupdate", filepath.Join(work, "selfupdate"), "v0.0.0"))
	must(t, os.WriteFile(filepath.Join(work, asset), []byte("a program"), 0o755))
	digest, err := digestOf(filepath.Join(work, asset))
	must(t, err)
	sumsFile := filepath.Join(work, sums)
	must(t, os.WriteFile(sumsFile, []byte(digest+"  "+asset+"\n"), 0o644))
	must(t, command(t.Context(), work, "openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ecdsa.pem"))
	must(t, command(t.Context(), work, "openssl", "pkey", "-in", "ecdsa.pem", "-pubout", "-out", "ecdsa.pub"))

	run := func(script string) error {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", "set -o pipefail; PATH=$PWD:$PATH\n"+script)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "VERSION="+version)
		cmd.Stdin = strings.NewReader(password + "\n" + password + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", script, err, out)
		}
		return nil
	}
	commands := published(t)["sh"]
	if len(commands) != 4 {
		t.Fatalf("%d commands, want: a key, minisign, openssl, verify", len(commands))
	}
	generate, sign, ecdsa, verify := commands[0], commands[1], commands[2], commands[3]
	must(t, run(generate))
	if err := run(verify); err == nil {
		t.Error("verified before anybody signed")
	}
	must(t, run(sign))
	must(t, run(verify))

	must(t, os.Remove(sumsFile+".minisig"))
	if got := ours(t).sign(t, sumsFile, version, filepath.Join(work, "minisign.key"), password); got != sumsFile+".minisig" {
		t.Errorf("goreleaser signs into %s", got)
	}
	must(t, run(verify))
	if err := run(strings.ReplaceAll(verify, "$VERSION", "v2.5.0")); err == nil {
		t.Error("verified as another version")
	}

	must(t, run(ecdsa)) // changes the file: the other signature is of another one now
	if err := run(verify); err == nil {
		t.Error("verified what was changed after it was signed")
	}
	must(t, run(strings.ReplaceAll(verify, "minisign.pub", "ecdsa.pub")))
	if err := run(strings.ReplaceAll(strings.ReplaceAll(verify, "minisign.pub", "ecdsa.pub"), "$VERSION", "v2.5.0")); err == nil {
		t.Error("verified as another version")
	}
}

// newKey makes a key without a password.
func newKey(t *testing.T, dir string) (public, secret string) {
	t.Helper()
	public, secret = filepath.Join(dir, "minisign.pub"), filepath.Join(dir, "minisign.key")
	must(t, command(context.Background(), dir, "minisign", "-G", "-W", "-p", public, "-s", secret))
	return public, secret
}

// TestReleaseSignature: a key that is not given fails the release instead of leaving
// it unsigned.
func TestReleaseSignature(t *testing.T) {
	for _, a := range ours(t).Signs[0].Args {
		if strings.Contains(a, "MINISIGN_KEY") {
			err := template.Must(template.New("").Option("missingkey=error").Parse(a)).
				Execute(&bytes.Buffer{}, map[string]any{"Env": map[string]string{}})
			if err == nil {
				t.Errorf("%s is made without a key", a)
			}
			return
		}
	}
	t.Error("no argument names the key")
}
