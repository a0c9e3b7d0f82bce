package httpapi

import (
	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/platform/timestamp"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// campaignBounds are the limits of the settings on campaigns.
func campaignBounds(settings config.Settings) campaign.Bounds {
	return campaign.Bounds{MaxPositions: settings.Campaigns.MaxPositions, MinPrice: money.Amount(settings.Campaigns.MinPrice), Beacon: settings.Beacon.Enabled(), Timestamps: settings.Timestamps.Enabled()}
}

// bindingsOf are what campaigns can bind themselves to in an installation with these settings.
func bindingsOf(settings config.Settings) (bindings lifecycle.Bindings, err error) {
	if !settings.Beacon.Enabled() {
		return bindings, nil
	}
	chain, err := settings.Beacon.Chain()
	if err != nil {
		return bindings, err
	}
	bindings.Chain = &chain
	bindings.Authorities, err = timestamp.Roots(settings.Timestamps)
	return bindings, err
}
