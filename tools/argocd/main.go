// Command argocd is the part of Argo CD that keeps a cluster as Git says, in one binary: the application
// controller, the repository server and the ApplicationSet controller. The name it is called by (a link) picks the
// component. There is no API server, no user interface and no CLI in it: everything is done by custom resources.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	appcontroller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	appsetcontroller "github.com/argoproj/argo-cd/v3/cmd/argocd-applicationset-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

// components maps the name that the binary is called by to its command.
var components = map[string]func() *cobra.Command{
	"argocd-application-controller":    appcontroller.NewCommand,
	"argocd-applicationset-controller": appsetcontroller.NewCommand,
	"argocd-repo-server":               reposerver.NewCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	newCommand, ok := components[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "argocd: no component named %q\n", name)
		os.Exit(2)
	}
	command := newCommand()
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
