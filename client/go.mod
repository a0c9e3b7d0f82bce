module triprize.example/client

go 1.24.0

require (
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/google/uuid v1.6.0
	github.com/oapi-codegen/nullable v1.1.0
)
