package resource

import (
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
)

// SeesMetadata tells whether somebody is shown what apps write on resources for themselves:
// ids of their own books, names of clerks. Buyers and the public are not.
func (who Role) SeesMetadata() bool { return who == Operator || who == App }

// metadataFor returns the metadata that who is shown: {} for none, and nil for somebody who
// does not see any.
func metadataFor(m metadata.Map, who Role) *contract.Metadata {
	if !who.SeesMetadata() {
		return nil
	}
	shown := contract.Metadata(m)
	if shown == nil {
		shown = contract.Metadata{}
	}
	return &shown
}
