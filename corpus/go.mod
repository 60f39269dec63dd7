module github.com/metal-stack/selfreconcile/corpus

go 1.26.0
