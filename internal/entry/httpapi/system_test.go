package httpapi_test

import (
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestMain(m *testing.M) { fleet.Main(m) }
