package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func (a *app) acquire() *cobra.Command {
	w := &wanted{}
	cmd := &cobra.Command{
		Use:   "acquire NAME",
		Short: "Acquire a lease and print its token",
		Long:  "Acquire a lease and print its token. Nothing renews it: it expires after its TTL unless keepalive is called (or use lock).",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			options, err := w.options()
			if err != nil {
				return err
			}
			req := &leasev1.AcquireRequest{Name: names[0], RequestId: lease.NewRequestID()}
			for _, option := range options {
				option(req)
			}
			limit := a.timeout
			if w.wait > 0 {
				req.Wait = &leasev1.Wait{Timeout: durationpb.New(w.wait)}
				limit += w.wait
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return a.stream(ctx, func(ctx context.Context, c *clients) error {
				got, err := c.lease.Acquire(ctx, req)
				if err != nil {
					return lease.Typed(names[0], err)
				}
				return a.print(got, func(t *table) {
					t.row("NAME", "TOKEN", "TTL", "REVISION")
					t.row(got.GetName(), number(got.GetToken()), duration(got.GetTtl()), number(got.GetRevision()))
				})
			})
		},
	}
	w.flags(cmd)
	cmd.Flags().DurationVar(&w.wait, "wait", 0, "wait in line for so long (default only try)")
	return cmd
}

func (a *app) keepAlive() *cobra.Command {
	return a.withToken("keepalive NAME TOKEN", "Give a lease its full TTL anew", func(ctx context.Context, c *clients, name string, token int64) error {
		got, err := c.lease.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: name, Token: token})
		if err != nil {
			return lease.Typed(name, err)
		}
		return a.print(got, func(t *table) {
			t.row("NAME", "TOKEN", "EXPIRES IN")
			t.row(name, number(token), duration(got.GetExpiresIn()))
		})
	})
}

func (a *app) release() *cobra.Command {
	return a.withToken("release NAME TOKEN", "Release a lease", func(ctx context.Context, c *clients, name string, token int64) error {
		got, err := c.lease.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: token})
		if err != nil {
			return lease.Typed(name, err)
		}
		return a.print(got, func(t *table) {
			if got.GetReleased() {
				t.line("released")
				return
			}
			t.line("not held with this token (any more)")
		})
	})
}

func (a *app) withToken(use, short string, do func(context.Context, *clients, string, int64) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			token, err := strconv.ParseInt(given[1], 10, 64)
			if err != nil || token <= 0 {
				return &usageError{fmt.Errorf("token is %q; it must be a positive number", given[1])}
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error { return do(ctx, c, given[0], token) })
		},
	}
}

func (a *app) get() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show who holds a lease and who waits for it", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				got, err := c.lease.Get(ctx, &leasev1.GetRequest{Name: names[0], IncludeQueue: true})
				if err != nil {
					return lease.Typed(names[0], err)
				}
				return a.print(got.GetLease(), func(t *table) {
					if len(got.GetLease().GetHolds()) == 0 {
						t.line(names[0] + " is free")
					} else {
						t.leases(got.GetLease())
					}
					for i, w := range got.GetLease().GetQueue() {
						if i == 0 {
							t.row("")
							t.row("WAITING", "MODE", "FOR")
						}
						t.row(w.GetHolder(), mode(w.GetMode(), w.GetPermits(), 0), duration(w.GetWaited()))
					}
				})
			})
		},
	}
}

func (a *app) list() *cobra.Command {
	var holder string
	cmd := &cobra.Command{
		Use: "list [PREFIX]", Short: "List the held leases", Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, prefix []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				req := &leasev1.ListRequest{PageSize: 1000, Holder: holder}
				if len(prefix) > 0 {
					req.Prefix = prefix[0]
				}
				all := &leasev1.ListResponse{}
				for {
					page, err := c.lease.List(ctx, req)
					if err != nil {
						return lease.Typed(req.GetPrefix(), err)
					}
					all.Leases = append(all.Leases, page.GetLeases()...)
					if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
						break
					}
				}
				return a.print(all, func(t *table) { t.leases(all.GetLeases()...) })
			})
		},
	}
	cmd.Flags().StringVar(&holder, "holder", "", "only leases of this holder")
	return cmd
}

func (a *app) watch() *cobra.Command {
	var prefix bool
	var after int64
	cmd := &cobra.Command{
		Use: "watch NAME", Short: "Follow what happens to a lease, or with --prefix to all under a prefix", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			req := &leasev1.WatchRequest{Target: &leasev1.WatchRequest_Name{Name: names[0]}, AfterRevision: after}
			if prefix {
				req.Target = &leasev1.WatchRequest_Prefix{Prefix: names[0]}
			}
			return a.stream(cmd.Context(), func(ctx context.Context, c *clients) error {
				stream, err := c.lease.Watch(ctx, req)
				if err != nil {
					return lease.Typed(names[0], err)
				}
				for {
					got, err := stream.Recv()
					if errors.Is(err, io.EOF) || errors.Is(ctx.Err(), context.Canceled) {
						return nil // interrupted
					}
					if err != nil {
						return lease.Typed(names[0], err)
					}
					if err := a.print(got, func(t *table) { t.watch(got) }); err != nil {
						return err
					}
				}
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "NAME is what the names begin with; it may be empty")
	cmd.Flags().Int64Var(&after, "after", 0, "show the changes after this revision (default the present state first)")
	return cmd
}

func (a *app) revoke() *cobra.Command {
	var token int64
	var deadline time.Duration
	var reason string
	var force bool
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "Ask the holder of a lease to let go, or end its lease with --force", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			req := &leasev1.RevokeRequest{Name: names[0], Token: token, Reason: reason, Force: force, RequestedBy: defaultHolder()}
			if deadline > 0 {
				req.Deadline = durationpb.New(deadline)
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				got, err := c.lease.Revoke(ctx, req)
				if err != nil {
					return lease.Typed(names[0], err)
				}
				return a.print(got, func(t *table) {
					verb := "asked"
					if got.GetEnded() {
						verb = "ended"
					}
					for _, h := range got.GetHolds() {
						t.line(fmt.Sprintf("%s %s with token %d", verb, h.GetHolder(), h.GetToken()))
					}
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&token, "token", 0, "only the hold with this token (default all)")
	flags.DurationVar(&deadline, "deadline", 0, "how long the holder has")
	flags.StringVar(&reason, "reason", "", "why, for the holder")
	flags.BoolVar(&force, "force", false, "end the lease at the deadline, or at once without one")
	return cmd
}

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how the replicas fare", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *clients) error {
				got, err := c.status.GetStatus(ctx, &leasestatus.GetStatusRequest{})
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				return a.print(got, func(t *table) { t.status(got) })
			})
		},
	}
}
