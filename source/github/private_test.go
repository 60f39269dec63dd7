package githubsource

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/metal-stack/selfreconcile/selfupdate"
)

func TestReleasePrivate(t *testing.T) {
	for _, root := range []string{"/", "/api/v3/"} { // the second is Enterprise
		h := newHub(t)
		h.private, h.root = true, root
		h.add("v1.0.0", 1, h.asset(7, "metalctl-linux-amd64"))
		own := &http.Client{}
		s := h.source(Options{Token: token, Client: own})
		for _, version := range []string{"v1.0.0", ""} {
			rel, err := s.Release(t.Context(), version)
			require.NoError(t, err)
			a, err := rel.Asset("metalctl-linux-amd64")
			require.NoError(t, err)
			h.requests()
			body, err := a.Open(t.Context(), selfupdate.Position{})
			if err == nil {
				_ = body.Close()
			}
			require.ErrorIs(t, err, selfupdate.ErrSize, "the storage's size is not the API's") // asset7 is shorter
			assert.Equal(t, []string{root + "repos/metal-stack/metalctl/releases/assets/7", "storage /asset7"}, h.requests())
		}
		assert.Equal(t, http.Client{}, *own, "the caller's client is not changed")

		_, err := h.source(Options{List: true}).Release(t.Context(), "v1.0.0")
		require.ErrorIs(t, err, selfupdate.ErrNotFound)
		assert.Contains(t, err.Error(), "token")

		_, err = h.source(Options{Token: "stale"}).Release(t.Context(), "v1.0.0")
		require.ErrorIs(t, err, selfupdate.ErrResponse)
		assert.Contains(t, err.Error(), "the token was refused")
		assert.NotContains(t, err.Error(), "stale")
	}
}

func TestReleasePrivateAssetRead(t *testing.T) {
	h := newHub(t)
	h.private = true
	a := h.asset(7, "asset7")
	h.add("v1.0.0", 1, a)
	rel, err := h.source(Options{Token: token}).Release(t.Context(), "v1.0.0")
	require.NoError(t, err)
	assert.Equal(t, a["browser_download_url"], rel.Assets[0].URL)
	assert.Equal(t, "payload of asset7", read(t, rel.Assets[0]))
}

func TestReleaseTokenStaysWithTheAPI(t *testing.T) {
	h := newHub(t)
	h.answer = func(w http.ResponseWriter, r *http.Request) bool { // a repository that "moved" to a foreign host
		http.Redirect(w, r, h.storage.URL+"/moved?x=secret", http.StatusMovedPermanently)
		return true
	}
	_, err := h.source(Options{Token: token}).Release(t.Context(), "v1.0.0")
	require.ErrorIs(t, err, selfupdate.ErrResponse) // the storage would have said 400 with the token: it is no JSON instead
	assert.Contains(t, err.Error(), "JSON")
	assert.NotContains(t, err.Error(), "secret")
	assert.NotContains(t, err.Error(), token)
}
