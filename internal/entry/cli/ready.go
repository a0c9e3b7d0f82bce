package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// readyTimeout is longer than a process takes to probe what it needs.
const readyTimeout = 5 * time.Second

// readyCommand asks a process whether it can do its work. It is for health checks in
// containers, whose images have no curl.
func readyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ready URL",
		Short: "Ask a process whether it is ready, such as http://127.0.0.1:8080/readyz; status 0 when it is",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("not ready: %s answered %s", args[0], response.Status)
			}
			return nil
		},
	}
}
