package httpapi

import (
	"sync"

	"triprize/api"
	"triprize/internal/platform/openapi"
)

// patterns has the error message for each regular expression in the contract.
var patterns = map[string]string{
	"^[^\x00-\x1f\x7f-\u009f]*$": "must not contain control characters",
	`^[A-Z]{3}$`:                 "must be three capital letters (ISO 4217)",
	"^pm_[A-Za-z0-9_]+$":         "must be the id of a payment method of the provider, such as pm_1Q0PsIJvEtkwdCNYMSaVuRz6",
	"^https?://[!-~]+$":          "must be the address of a page: https://…",
	`^[A-Za-z0-9_-]{22}$`:        "must be the next_cursor of an earlier page",
	`^"(0|[1-9][0-9]{0,17})"$`:   `must be a version in quotes, such as "7"`,
}

var readContract = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Load(api.OpenAPI, patterns) })

// LoadContract returns the HTTP contract, ready to check requests. It is read once
// in a process; callers share it and must not change it.
func LoadContract() (*openapi.Document, error) { return readContract() }
