module triprize.example/draw

go 1.26.0

require (
	github.com/cloudflare/circl v1.6.5
	github.com/google/uuid v1.6.0
	github.com/gowebpki/jcs v1.0.2
	github.com/spf13/cobra v1.10.2
	github.com/transparency-dev/merkle v0.0.2
	pgregory.net/rapid v1.3.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
