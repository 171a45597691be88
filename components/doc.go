// Package components holds the Pulumi components of Holdfast.
//
//   - [Platform] is the operator with everything it needs: namespace, CRDs, RBAC, configuration, Deployment.
//   - [TenantSpace] is a namespace in which the operator may work: quota, network isolation, the operator's Role.
//   - [LeaseTenant] is one tenant's lease service.
//   - [LeaseService] is the custom resource alone, typed.
//   - [ZooKeeperConfig] is the custom resource alone, typed; [ZooKeeperConfigSet] is many of them, by path.
//   - [ReleaseGuard] is the custom resource alone, typed: a release by rings of Argo CD's Applications.
//   - [GitOpsHandover] is what Argo CD or Flux need to keep an environment as Git says.
//   - [DevEtcd] is a single etcd for development.
//
// Arguments are plain Go values of the types that the operator uses itself. Every object has a fixed name, so what a
// component makes can be rendered to manifests and handed to a GitOps controller later.
package components
