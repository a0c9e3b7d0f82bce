package e2e

import (
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestMain(m *testing.M) { fleet.Main(m) }
