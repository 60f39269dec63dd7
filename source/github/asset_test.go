package githubsource

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestReleaseAssetsInPages(t *testing.T) {
	for _, embed := range []int{30, 100, 1000} {
		h := newHub(t)
		h.embed = embed
		var assets []map[string]any
		for i := range 130 {
			assets = append(assets, h.asset(i, fmt.Sprintf("tool-%d", i)))
		}
		h.add("v1.0.0", 1, assets...)
		for _, version := range []string{"v1.0.0", ""} {
			rel, err := h.source(Options{List: true}).Release(t.Context(), version)
			require.NoError(t, err)
			assert.Len(t, rel.Assets, 130)
			assert.Nil(t, rel.Lookup, "the list is complete")
			a, err := rel.Asset("tool-129")
			require.NoError(t, err)
			assert.Equal(t, "payload of tool-129", read(t, a))
			_, err = rel.Asset("tool-130")
			require.ErrorIs(t, err, selfupdate.ErrNotFound)
		}
	}
}

func TestReleaseNotModifiedWithManyAssets(t *testing.T) {
	h := newHub(t)
	h.embed = 30
	var assets []map[string]any
	for i := range 130 {
		assets = append(assets, h.asset(i, fmt.Sprintf("tool-%d", i)))
	}
	h.add("v1.0.0", 1, assets...)
	s := h.source(Options{Token: token})
	for _, version := range []string{"v1.0.0", ""} {
		_, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.Len(t, h.requests(), 3)
		rel, err := s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.Len(t, rel.Assets, 130)
		assert.Len(t, h.requests(), 1, "a poll with nothing new")

		s.now = func() time.Time { return noon.Add(-24 * time.Hour) } // just published
		assets[129]["state"] = "starter"                              // beyond what the release object shows
		rel, err = s.Release(t.Context(), version)
		require.NoError(t, err)
		assert.True(t, rel.Assets[129].NotReady)
		assert.Len(t, h.requests(), 3)
		s.now, assets[129]["state"] = func() time.Time { return noon }, "uploaded"
	}
}

func TestReleaseAssetFields(t *testing.T) {
	h := newHub(t)
	hex := strings.Repeat("0f", 32)
	ready, starter, odd := h.asset(1, "ready"), h.asset(2, "starter"), h.asset(3, "odd")
	ready["digest"] = "sha256:" + hex
	starter["state"], starter["size"] = "starter", 0
	odd["digest"], odd["browser_download_url"] = "md5:00", "file:///etc/passwd"
	evil := h.asset(4, "../evil")
	renamed := h.asset(5, "app_1.0.0.rc.1_amd64") // uploaded as app_1.0.0~rc.1_amd64
	h.add("v1.0.0", 2, ready, starter, odd, evil, renamed)
	h.add("v1.1.0", 0.9/24, starter)
	s := h.source(Options{List: true})
	rel, err := s.Release(t.Context(), "v1.0.0")
	require.NoError(t, err)
	require.Len(t, rel.Assets, 4, "a name that leaves the directory is left out")
	assert.False(t, rel.Young)

	a, err := rel.Asset("ready")
	require.NoError(t, err)
	assert.Equal(t, "sha256:"+hex, a.Sum.String())
	assert.EqualValues(t, len("payload of ready"), a.Size)
	assert.False(t, a.NotReady)
	assert.Equal(t, "payload of ready", read(t, a))

	a, err = rel.Asset("starter")
	require.NoError(t, err)
	assert.True(t, a.NotReady)
	assert.EqualValues(t, -1, a.Size)

	a, err = rel.Asset("odd")
	require.NoError(t, err)
	assert.True(t, a.Sum.IsZero())
	_, err = a.Open(t.Context(), selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrResponse)
	assert.NotContains(t, err.Error(), "passwd")

	a, err = rel.Asset("app_1.0.0.rc.1_amd64")
	require.NoError(t, err)
	assert.Equal(t, renamed["browser_download_url"], a.URL)

	rel, err = s.Release(t.Context(), "v1.1.0")
	require.NoError(t, err)
	assert.True(t, rel.Young)
	starter["state"], starter["size"] = "uploaded", 18
	rel, err = s.Release(t.Context(), "v1.1.0")
	require.NoError(t, err)
	assert.False(t, rel.Assets[0].NotReady, "an incomplete release is not remembered")
}

func TestReleaseTwoAssetsOfOneName(t *testing.T) {
	h := newHub(t)
	h.add("v1.0.0", 2, h.asset(1, "twice"), h.asset(2, "once"), h.asset(3, "twice"), h.asset(4, "twice"))
	rel, err := h.source(Options{}).Release(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, rel.Assets, 2)
	a, err := rel.Asset("twice")
	require.NoError(t, err)
	_, err = a.Open(t.Context(), selfupdate.Position{})
	require.ErrorIs(t, err, selfupdate.ErrAsset)
	a, err = rel.Asset("once")
	require.NoError(t, err)
	assert.Equal(t, "payload of once", read(t, a))
}

func TestReleaseUnusableAssetNames(t *testing.T) {
	h := newHub(t)
	var assets []map[string]any
	for i, name := range []string{"", "..", "a/b", `a\b`, "a\x1b[31m", strings.Repeat("n", 256), strings.Repeat("n", 5<<10), "good"} {
		assets = append(assets, h.asset(i, name))
	}
	h.add("v1.0.0", 2, assets...)
	var log bytes.Buffer
	rel, err := h.source(Options{Log: debug(&log)}).Release(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, rel.Assets, 1)
	assert.Equal(t, "payload of good", read(t, rel.Assets[0]))
	assert.Equal(t, 7, strings.Count(log.String(), "asset skipped"))
	assert.NotContains(t, log.String(), "\x1b")
}
