// Command etcd is the etcd server. It is a binary of its own, apart from command kube, since it
// is also the image of the development etcd, which should be small.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
