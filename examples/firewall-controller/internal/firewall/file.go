package firewall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sigs.k8s.io/yaml" // the JSON tags and the strictness of Kubernetes, so that the types stay when the resource comes

	"github.com/metal-stack/selfreconcile/examples/firewall-controller/internal/atomicfile"
)

const (
	maxSpec = 1 << 20 // bytes
	poll    = 250 * time.Millisecond
)

// File is a [Store] in files.
type File struct {
	SpecPath   string // YAML, written by the operator
	StatusPath string // YAML, replaced as a whole; "" is none
	EventsPath string // a JSON object a line, appended; "" is none
}

// manifest is the spec file: the resource as kubectl would apply it.
type manifest struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   metadata `json:"metadata,omitempty"`
	Spec       *Spec    `json:"spec"`
}

// metadata is what matters of it; whatever else is there does not.
type metadata struct{ annotations map[string]string }

func (m *metadata) UnmarshalJSON(b []byte) error {
	var known struct {
		Annotations map[string]string `json:"annotations"`
	}
	err := json.Unmarshal(b, &known)
	m.annotations = known.Annotations
	return err
}

// Spec implements [Store]. An unknown key is an error: a mistyped controllerVersion
// must not look like none.
func (f *File) Spec(context.Context) (Spec, error) {
	data, err := f.read()
	if err != nil {
		return Spec{}, err
	}
	return parse(data)
}

func parse(data []byte) (Spec, error) {
	var m manifest
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return Spec{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if m.Spec == nil {
		return Spec{}, fmt.Errorf("%w: no key spec", ErrInvalid)
	}
	m.Spec.Retry = m.Metadata.annotations[RetryAnnotation]
	return *m.Spec, nil
}

func (f *File) read() ([]byte, error) {
	file, err := os.Open(f.SpecPath)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSpec+1))
	if err == nil && len(data) > maxSpec {
		err = fmt.Errorf("%s is larger than %d bytes", f.SpecPath, maxSpec)
	}
	return data, err
}

// Changes implements [Store] by looking at the file's content every quarter of a
// second: nothing to install, and right on every file system.
func (f *File) Changes(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	last, _ := f.read() // an error is the empty content: its end is a change
	go func() {
		tick := time.NewTicker(poll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now, _ := f.read()
			if bytes.Equal(now, last) {
				continue
			}
			last = now
			select {
			case changes <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	return changes
}

// SetStatus implements [Store].
func (f *File) SetStatus(_ context.Context, s Status) error {
	if f.StatusPath == "" {
		return nil
	}
	data, err := yaml.Marshal(s)
	if err != nil {
		return err
	}
	head := "# Written for people after each reconcile; nothing reads it back.\n"
	return atomicfile.Write(f.StatusPath, append([]byte(head), data...))
}

// Emit implements [Store].
func (f *File) Emit(_ context.Context, e Event) error {
	if f.EventsPath == "" {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.EventsPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
