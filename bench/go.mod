module github.com/metal-stack/selfreconcile/bench

go 1.26.0

require (
	github.com/metal-stack/selfreconcile v0.0.0
	github.com/minio/selfupdate v0.6.0
)

require (
	aead.dev/minisign v0.2.0 // indirect
	golang.org/x/crypto v0.0.0-20211209193657-4570a0811e8b // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/metal-stack/selfreconcile => ../
