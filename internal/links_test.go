package internal_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The worker and the scheduler make the documents of the API for webhooks, without its server,
// and nothing in production is paid or drawn by a simulator.
func TestOnlyTheAPILinksTheHTTPServerAndNoneASimulator(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"api", "worker", "scheduler"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "triprize/cmd/"+program).Output()
		if err != nil {
			t.Fatal(program, err)
		}
		if linked := strings.Contains(string(out), "github.com/gofiber/"); linked != (program == "api") {
			t.Errorf("%s links Fiber: %t", program, linked)
		}
		if strings.Contains(string(out), "triprize/internal/simulator/") {
			t.Errorf("%s links a simulator", program)
		}
	}
}
