package webhook_test

import (
	"testing"

	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
