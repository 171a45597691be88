// Package namespaces is the operator's cache over the namespaces that it is given.
//
// It differs from controller-runtime's cache over several namespaces in three ways:
//
//   - A namespace that may not be listed holds nobody up. It counts as synced and empty until it can be listed, is tried
//     again in the background, and whoever asks for an object in it is told that it is unreadable (UnreadableError) and not
//     that there is none. So the operator may be told of a namespace before its Role exists, and may lose one while it runs.
//   - Namespaces come and go while the operator runs. Each is named by a ConfigMap with the label crds.WatchLabel in the operator's
//     own namespace, beside those of its configuration. So a new tenant restarts nothing, and whoever deletes a tenant deletes
//     the ConfigMap last: finalizers in the namespace still have the operator that waits for them.
//   - A namespace whose ConfigMap goes earlier is kept until the operator's finalizers in it are gone. A record in the
//     operator's own namespace keeps it through a restart.
package namespaces
