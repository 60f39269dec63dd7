module github.com/metal-stack/selfreconcile/bench

go 1.26.0

require (
	github.com/metal-stack/selfreconcile v0.0.0
	github.com/minio/selfupdate v0.6.0
	golang.org/x/sys v0.50.0
)

require (
	aead.dev/minisign v0.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	golang.org/x/crypto v0.59.0 // indirect
)

replace github.com/metal-stack/selfreconcile => ../
