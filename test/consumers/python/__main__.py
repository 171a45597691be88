"""A tenant of Holdfast from Python."""

import holdfast_pulumi as holdfast
import pulumi

etcd = holdfast.DevEtcd(
    "etcd",
    image="gcr.io/etcd-development/etcd:v3.7.3",
    client_namespaces=["team-a"],
)

tenant = holdfast.LeaseTenant(
    "orders",
    tenant="orders",
    namespace="team-a",
    service=holdfast.LeaseServiceSpecArgs(
        replicas=3,
        # What another resource gives may be given on: the tenant waits for it.
        etcd_endpoints=[etcd.endpoint],
        tls=holdfast.LeaseServiceTLSArgs(mode=holdfast.TLSMode.TLS_MANAGED),
        resources=holdfast.ResourceRequirementsArgs(limits={"memory": "256Mi"}),
    ),
)

pulumi.export("endpoint", tenant.endpoint)
