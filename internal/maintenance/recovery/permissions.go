package recovery

import (
	"context"
	"maps"
	"slices"
)

// missingPermissions asks what the key of the provider may do: a restricted key can lose a
// permission at any time, and the first payment or refund that needs it would tell.
func (s *Sweeper) missingPermissions(ctx context.Context) (Counts, error) {
	counts := Counts{"asked": 0, "missing": 0}
	if s.provider == nil {
		return counts, nil
	}
	has, err := s.provider.CheckPermissions(ctx)
	counts["asked"] = len(has)
	for _, permission := range slices.Sorted(maps.Keys(has)) {
		if !has[permission] {
			counts["missing"]++
			s.logger.Error("the key of the provider lacks a permission: what needs it waits for an operator", "permission", permission)
		}
	}
	return counts, err
}
