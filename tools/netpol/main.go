// Command kube-network-policies enforces the NetworkPolicies of one node of the local cluster. It
// decides on the packets that iptables rules hand over through a netfilter queue.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

type options struct {
	kubeconfig, node string
	queue            int
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&o.node, "node", "", "name of the node")
	flag.IntVar(&o.queue, "queue", 100, "number of the netfilter queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-network-policies:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := networkpolicy.NewController(client,
		factory.Networking().V1().NetworkPolicies(), factory.Core().V1().Namespaces(), factory.Core().V1().Pods(),
		nil, nil, nil, nil, // AdminNetworkPolicies
		networkpolicy.Config{
			NodeName: o.node, QueueID: o.queue,
			// Longer than the name of an nftables table can be. The enforcer would put rules of
			// its own beside the iptables ones on the kernels that have nftables queues, and
			// nothing on the others; this way it is the same on all.
			NFTableName: strings.Repeat("-", 256),
		})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	factory.Start(ctx.Done())
	return controller.Run(ctx)
}
