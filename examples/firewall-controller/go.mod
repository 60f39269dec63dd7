module github.com/metal-stack/selfreconcile/examples/firewall-controller

go 1.26.0

require (
	github.com/coreos/go-systemd/v22 v22.7.0
	github.com/metal-stack/selfreconcile v0.0.0
	github.com/stretchr/testify v1.12.1
	sigs.k8s.io/yaml v1.6.0
)

require (
	aead.dev/minisign v0.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/minio/selfupdate v0.6.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/metal-stack/selfreconcile => ../..
