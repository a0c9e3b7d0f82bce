# One image with all four programs; docker-compose.yml says which one runs.
ARG GO_VERSION=1.26.8

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
# The modules are a layer of their own: they change less often than the code.
COPY go.mod go.sum ./
COPY client/go.mod client/go.sum client/
COPY draw/go.mod draw/go.sum draw/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# Without cgo the programs are static, so they need nothing of the image they
# run in, and can be built for another machine than this one.
ARG TARGETOS TARGETARCH
# docker build --build-arg VERSION="$(git describe --tags --always)" . is what --version says.
ARG VERSION=
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/cache/go-build \
    GOCACHE=/cache/go-build CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w -X triprize/internal/domain/buildinfo.version=$VERSION" -o /out/ \
    ./cmd/api ./cmd/worker ./cmd/scheduler ./cmd/triprize

# CA certificates, time zones and a user without rights; no shell, no packages.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ /usr/local/bin/
CMD ["triprize", "--help"]
