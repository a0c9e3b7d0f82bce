package fleet

import (
	"os/exec"
	"strings"
	"testing"
)

// NodeEnv returns what the environment of Node.js needs beside that of the test. Node.js 18,
// which some distributions have, keeps the Web Crypto API behind a flag; 20 and newer do not.
func NodeEnv(t *testing.T) []string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Fatalf("Node.js does not run (make npm installs it): %v", err)
	}
	if strings.HasPrefix(string(version), "v18.") {
		return []string{"NODE_OPTIONS=--experimental-global-webcrypto"}
	}
	return nil
}
