//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/firewall"
)

// What the demo knows it knows from here: files that the controller wrote, the
// program file itself, and the operator's command.

func (d *demo) readStatus() (firewall.Status, error) {
	var s firewall.Status
	data, err := os.ReadFile(d.status)
	if err != nil {
		return s, err
	}
	return s, yaml.Unmarshal(data, &s)
}

// event returns the newest event of that reason by that process, 0 being any.
func (d *demo) event(reason firewall.Reason, pid int) (firewall.Event, error) {
	data, err := os.ReadFile(d.events)
	if err != nil {
		return firewall.Event{}, err
	}
	var found firewall.Event
	for line := range bytes.Lines(data) {
		var e firewall.Event
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &e) != nil {
			continue // being written
		}
		if e.Reason == reason && (pid == 0 || e.PID == pid) {
			found = e
		}
	}
	if found.Reason == "" {
		return found, fmt.Errorf("no event %s", reason)
	}
	return found, nil
}

// digest is that of the program file now.
func (d *demo) digest() (string, error) {
	data, err := os.ReadFile(d.target)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// asks runs the program file with -v.
func (d *demo) asks(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, d.target, "-v").Output()
	return strings.TrimSpace(string(out)), err
}

// listing is every file in the program's directory with mode, size and digest, but
// for the record, which may say more.
func (d *demo) listing() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Dir(d.target), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if files[path] = fi.Mode().String(); e.Name() == "state.json" {
			return nil
		}
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files[path] += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		}
		return nil
	})
	return files, err
}

// operator runs the selfupdate command and shows what it says.
func (d *demo) operator(ctx context.Context, args ...string) error {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; strings.Contains(a, " ") {
			quoted[i] = `"` + a + `"`
		}
	}
	d.tell("operator", "$ selfupdate %s", strings.Join(quoted, " "))
	out, err := exec.CommandContext(ctx, d.cli, args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		d.tell("", "%s", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return fmt.Errorf("selfupdate %s: %w", args[0], err)
	}
	return nil
}

// writeSpec is what the operator does: version, number of rules, and a word that
// has what was rejected tried again.
func (d *demo) writeSpec(version string, rules int, retry string) error {
	spec := firewall.Spec{ControllerVersion: version, ControllerURL: d.server.assetURL(version), IPv4RuleFile: d.rules}
	for i := range rules {
		spec.EgressRules = append(spec.EgressRules, firewall.EgressRule{NetworkID: fmt.Sprintf("vlan%d", 100+i), IPs: []string{fmt.Sprintf("192.0.2.%d", 10+i)}})
	}
	meta := map[string]any{"name": "firewall"}
	if retry != "" {
		meta["annotations"] = map[string]string{firewall.RetryAnnotation: retry}
	}
	data, err := yaml.Marshal(map[string]any{"apiVersion": "firewall.metal-stack.io/v2", "kind": "Firewall", "metadata": meta, "spec": spec})
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.spec+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(d.spec+".new", d.spec)
}

// change is writeSpec, said aloud.
func (d *demo) change(version string, rules int) error {
	d.tell("operator", "writes firewall.yaml: controllerVersion %s, egress rules: %d", version, rules)
	return d.writeSpec(version, rules, "")
}
