// Package contract is generated: the types of the HTTP contract (api/openapi.yaml).
// They need no HTTP server; that is package operations.
// Change api/openapi.yaml, then run make generate.
package contract

//go:generate go tool -modfile=../../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../../../../api/openapi.yaml

// FullCampaign is the type of a Campaign: a summary, and what a list does not show.
type FullCampaign struct {
	CampaignSummary
	CampaignDetails
}
