package selfupdate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/checksum"

	"github.com/metal-stack/selfreconcile/internal/corpus"
)

func sampleRecord(t testing.TB) record {
	t.Helper()
	d := func(c string) checksum.Digest {
		v, err := checksum.ParseDigest(strings.Repeat(c, 64))
		require.NoError(t, err)
		return v
	}
	return record{
		Phase:    phaseStable,
		Current:  &entry{SHA256: d("a"), Published: digestOf([]byte("x")), Version: "v2", URL: "https://example.com/app", Size: 7, Confirmed: true, Stat: &stamp{7, 8, 9}},
		Good:     []entry{{SHA256: d("b"), Version: "v1", Confirmed: true}},
		Rejected: []rejection{{SHA256: d("c"), Class: "manual", Verdict: "manual"}},
		Last:     &event{Outcome: outcomeUpdated, At: time.Unix(1e9, 0).UTC()},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	want := sampleRecord(t)
	data, err := encodeRecord(want)
	require.NoError(t, err)
	got, err := decodeRecord(data)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.True(t, bytes.HasPrefix(data, []byte(`{"format":1,"sha256":"`)))
	assert.Contains(t, string(data), `"record":{"phase":"stable","current":{"sha256":"sha256:aaaa`, "what can be told without decoding comes first")
	assert.Equal(t, byte('\n'), data[len(data)-1])
}

// A later version of this module may have written more.
func TestRecordKeepsUnknownKeys(t *testing.T) {
	data, err := encodeRecord(sampleRecord(t))
	require.NoError(t, err)
	text := string(data)
	text = strings.Replace(text, `"size":7`, `"size":7,"later":{"deep":[1,2]}`, 1)
	text = strings.Replace(text, `"rejected":`, `"future":"yes","rejected":`, 1)
	text = strings.Replace(text, `"class":"manual"`, `"class":"manual","more":true`, 1)
	r, err := decodeRecord(resum(t, []byte(text)))
	require.NoError(t, err)
	r.RetryToken = "changed"
	again, err := encodeRecord(r)
	require.NoError(t, err)
	for _, kept := range []string{`"later":{"deep":[1,2]}`, `"future":"yes"`, `"more":true`, `"retry_token":"changed"`} {
		assert.Contains(t, string(again), kept)
	}
}

// resum writes the sum anew over a changed record.
func resum(t testing.TB, data []byte) []byte {
	t.Helper()
	var env struct{ Record json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &env))
	return fmt.Appendf(nil, `{"format":1,"sha256":"%s","record":%s}`+"\n", digestOf(env.Record).Hex(), env.Record)
}

func TestRecordDamaged(t *testing.T) {
	good, err := encodeRecord(sampleRecord(t))
	require.NoError(t, err)
	trial := bytes.Replace(good, []byte(`"stable"`), []byte(`"trial"`), 1)
	for name, data := range map[string][]byte{
		"empty":                {},
		"zeros":                make([]byte, 512),
		"cut":                  good[:len(good)/2],
		"no JSON":              []byte("hello"),
		"a flipped bit":        bytes.Replace(good, []byte("v2"), []byte("v3"), 1),
		"format 0":             bytes.Replace(good, []byte(`"format":1`), []byte(`"format":0`), 1),
		"too long":             append(bytes.TrimSuffix(good, []byte("\n")), bytes.Repeat([]byte(" "), maxRecord)...),
		"trial without one":    resum(t, trial),
		"unknown phase":        resum(t, bytes.Replace(good, []byte(`"stable"`), []byte(`"odd"`), 1)),
		"digest of other size": resum(t, bytes.Replace(good, []byte(strings.Repeat("b", 64)), []byte(strings.Repeat("b", 128)), 1)),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := decodeRecord(data)
			require.ErrorIs(t, err, errDamaged)
			assert.Nil(t, r.Trial, "damaged bytes never yield a trial")
		})
	}
	_, err = decodeRecord(bytes.Replace(good, []byte(`"format":1`), []byte(`"format":2`), 1))
	require.ErrorIs(t, err, ErrRecordFormat)
}

func TestRecordIsBounded(t *testing.T) {
	r := sampleRecord(t)
	long := strings.Repeat("x", 600)
	fillEntry := func(e *entry) {
		e.Version, e.URL, e.Policy = clip(long, maxVersion), clip(long, maxURL), clip(long, 256)
		e.Published = digestOf([]byte("y"))
	}
	fillEntry(r.Current)
	for i := range 40 {
		d := digestOf(fmt.Appendf(nil, "%d", i))
		r.reject(rejection{SHA256: d, Published: d, Version: clip(long, maxVersion), Class: "manual", Verdict: "manual", Reason: clip(long, 256)})
		e := entry{SHA256: d, Confirmed: true}
		fillEntry(&e)
		r.succeed(e)
	}
	assert.Len(t, r.Rejected, maxRejected)
	assert.Len(t, r.Good, maxGood)
	assert.Equal(t, digestOf([]byte("39")), r.Rejected[maxRejected-1].SHA256, "the oldest go")
	r.Phase, r.Trial = phaseTrial, &trial{Candidate: *r.Current, Reason: clip(long, 256)}
	data, err := encodeRecord(r)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(data), maxRecord)

	r.extra = map[string]json.RawMessage{"huge": json.RawMessage(`"` + strings.Repeat("z", maxRecord) + `"`), "small": json.RawMessage("1")}
	data, err = encodeRecord(r)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(data), maxRecord)
	assert.Contains(t, string(data), `"small":1`)
}

func FuzzDecodeRecord(f *testing.F) {
	corpus.Add(f)
	good, err := encodeRecord(sampleRecord(f))
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"format":1,"sha256":"","record":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range [][]byte{data, wrap(data)} {
			r, err := decodeRecord(d)
			if err != nil {
				continue
			}
			again, err := encodeRecord(r)
			if err != nil {
				continue // too large: only its keys of a later version can make it so
			}
			r2, err := decodeRecord(again)
			require.NoError(t, err)
			assert.Equal(t, r.Phase, r2.Phase)
		}
	})
}

// wrap makes bytes a record with a right sum, so that the fuzzer gets past it.
func wrap(record []byte) []byte {
	return fmt.Appendf(nil, `{"format":1,"sha256":"%s","record":%s}`, digestOf(record).Hex(), record)
}

func TestNewerRecordIsLeftAlone(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	_, err := u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	file := filepath.Join(filepath.Dir(path), ".app.d/state.json")
	newer := []byte(`{"format":7,"something":"else"}` + "\n")
	require.NoError(t, os.WriteFile(file, newer, 0o600))

	_, err = u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.ErrorIs(t, err, ErrRecordFormat)
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.ErrorIs(t, err, ErrRecordFormat)
	_, err = u.Clear(t.Context(), ClearOptions{All: true})
	require.ErrorIs(t, err, ErrRecordFormat)
	_, err = u.Status()
	require.ErrorIs(t, err, ErrRecordFormat)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, newer, got)
	assert.Equal(t, "v2", run(t, path))
}

func TestDamagedRecordHeals(t *testing.T) {
	path := installed(t, "v1")
	u := updater(t, path)
	_, err := u.Apply(t.Context(), releaseOf(t, "v2", "v2").Release)
	require.NoError(t, err)
	file := filepath.Join(filepath.Dir(path), ".app.d/state.json")
	require.NoError(t, os.WriteFile(file, make([]byte, 4096), 0o600))

	st, err := u.Status()
	require.NoError(t, err)
	assert.Equal(t, content256(t, programs["v2"]), st.Current.SHA256)
	_, err = u.Apply(t.Context(), releaseOf(t, "v3", "v3").Release)
	require.NoError(t, err)
	assert.Equal(t, "v3", run(t, path))
	_, err = u.Rollback(t.Context(), RollbackOptions{})
	require.NoError(t, err)
	assert.Equal(t, "v2", run(t, path))
}
