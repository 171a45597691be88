package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func (a *app) elect() *cobra.Command {
	w := &wanted{}
	value, once := "", false
	cmd := &cobra.Command{
		Use:   "elect NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while leading an election",
		Long: "Stand for an election, run a command while leading, resign when it has ended, and exit with its exit code.\n\n" +
			"When the leadership is lost, or somebody asks to have it back, the command is stopped as lock stops it, and started again after the next\n" +
			"election that is won. The command finds the same variables as with lock.",
		Args: args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			options, err := w.options()
			if err == nil {
				err = runnable(given[1])
			}
			if err != nil {
				return err
			}
			if value != "" {
				options = append(options, lease.WithValue([]byte(value)))
			}
			return a.stream(cmd.Context(), func(ctx context.Context, c *clients) error {
				for {
					leader, err := c.client.Campaign(ctx, given[0], w.holder, options...)
					if err != nil {
						return err
					}
					fmt.Fprintf(a.err, "leasectl: %s leads %s with token %d\n", w.holder, given[0], leader.Token())
					if stopped, err := a.guard(ctx, leader.Lease, given[1:]); !stopped || once {
						return err
					}
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&w.holder, "candidate", defaultHolder(), "name to stand under")
	flags.DurationVar(&w.ttl, "ttl", 0, "how long the leadership lives without a renewal (default the server's)")
	flags.StringArrayVar(&w.metadata, "metadata", nil, "show key=value along with the candidate; may be repeated")
	flags.StringVar(&value, "value", "", "what the leader proclaims")
	flags.BoolVar(&once, "once", false, "do not stand again after a lost leadership")
	return cmd
}

func (a *app) who() *cobra.Command {
	return &cobra.Command{
		Use: "who NAME", Short: "Print who holds a lease or leads an election; fail if nobody does", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				got, err := c.lease.Get(ctx, &leasev1.GetRequest{Name: names[0]})
				if err != nil {
					return lease.Typed(names[0], err)
				}
				holds := got.GetLease().GetHolds()
				if len(holds) == 0 {
					return errors.New("nobody holds " + names[0])
				}
				return a.print(&leasev1.Lease{Name: names[0], Holds: holds}, func(t *table) {
					for _, h := range holds {
						t.line(h.GetHolder())
					}
				})
			})
		},
	}
}

func (a *app) observe() *cobra.Command {
	return &cobra.Command{
		Use: "observe NAME", Short: "Follow who leads an election, and what it proclaims", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.stream(cmd.Context(), func(ctx context.Context, c *clients) error {
				for leader, err := range c.client.Observe(ctx, names[0]) {
					if errors.Is(ctx.Err(), context.Canceled) {
						return nil // interrupted
					}
					if err != nil {
						return err
					}
					shown := &leasev1.Leader{Candidate: leader.Candidate, Token: leader.Token, Value: leader.Value, Metadata: leader.Metadata}
					err = a.print(shown, func(t *table) {
						if leader.Candidate == "" {
							t.line("nobody leads")
							return
						}
						t.row(leader.Candidate, number(leader.Token), string(leader.Value))
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a *app) transfer() *cobra.Command {
	return &cobra.Command{
		Use: "transfer NAME TOKEN CANDIDATE", Short: "Hand a leadership to a candidate that is waiting", Args: args(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, given []string) error {
			token, err := strconv.ParseInt(given[1], 10, 64)
			if err != nil || token <= 0 {
				return &usageError{fmt.Errorf("token is %q; it must be a positive number", given[1])}
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				got, err := leasev1.NewElectionServiceClient(c.conn).Transfer(ctx, &leasev1.TransferRequest{Name: given[0], Token: token, To: given[2]})
				if err != nil {
					return lease.Typed(given[0], err)
				}
				return a.print(got, func(t *table) {
					t.line(fmt.Sprintf("%s leads with token %d", got.GetLeader().GetCandidate(), got.GetLeader().GetToken()))
				})
			})
		},
	}
}
