package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

// approvalsCommand lists, shows and withdraws what waits for another person's approval. Approving is for persons, in the console.
func approvalsCommand() *cobra.Command {
	list := &cobra.Command{Use: "approvals", Short: "List, show and withdraw requests for another person's approval; they are approved in the console", Args: cobra.NoArgs}
	state := list.Flags().String("state", string(client.ApprovalStatePending), "pending, approved, rejected, outdated, expired or withdrawn")
	reader(list, writeApprovals, func(ctx context.Context, api *client.Client, _ string) error {
		return only(api.ListApprovals(ctx, client.ListApprovalsParams{State: client.ApprovalState(*state), Limit: 200}))
	})
	one := func(c *cobra.Command, call func(ctx context.Context, api *client.Client, id uuid.UUID) error) *cobra.Command {
		c.Args = cobra.ExactArgs(1)
		return reader(c, writeYAML, func(ctx context.Context, api *client.Client, arg string) error {
			id, err := idOf("an approval request", arg)
			if err != nil {
				return err
			}
			return call(ctx, api, id)
		})
	}
	withdraw := &cobra.Command{Use: "withdraw REQUEST", Short: "Withdraw a request of the client of your key"}
	reason := required(withdraw, "reason", "why, for the audit trail")
	list.AddCommand(one(&cobra.Command{Use: "show REQUEST", Short: "Show a request: what it is about, who asks, and what became of it"}, func(ctx context.Context, api *client.Client, id uuid.UUID) error {
		return only(api.GetApproval(ctx, id))
	}), one(withdraw, func(ctx context.Context, api *client.Client, id uuid.UUID) error {
		return only(api.WithdrawRequest(ctx, id, client.ApprovalDecision{Reason: *reason}))
	}))
	return list
}

func writeApprovals(out io.Writer, document []byte) error {
	var page client.ApprovalPage
	if err := json.Unmarshal(document, &page); err != nil {
		return err
	}
	requests := table[client.Approval]{head: "REQUEST\tOPERATION\tTARGET\tBY\tSTATE\tREQUESTED\tEXPIRES", row: func(a client.Approval) string {
		return cells(a.ID, a.Operation, a.Target, cmp.Or(a.RequestedBy.Operator, a.RequestedBy.Client), a.State, a.RequestedAt.UTC(), a.ExpiresAt.UTC())
	}}
	err := requests.print(out, page.Approvals, false)
	if err == nil && page.NextCursor != "" {
		say(out, "There are more: these are the newest.")
	}
	return err
}
