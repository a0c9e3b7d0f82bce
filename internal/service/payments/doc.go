// Package payments leads payments through their phases, with calls of the provider.
package payments

// The metadata of our objects at the provider.
const (
	purchaseField = "purchase_id"
	campaignField = "campaign_id"
)
