import * as holdfast from "@holdfast-io/holdfast";

const etcd = new holdfast.DevEtcd("etcd", {
    image: "gcr.io/etcd-development/etcd:v3.7.3",
    clientNamespaces: ["team-a"],
});

const tenant = new holdfast.LeaseTenant("orders", {
    tenant: "orders",
    namespace: "team-a",
    service: {
        replicas: 3,
        // What another resource gives may be given on: the tenant waits for it.
        etcdEndpoints: [etcd.endpoint],
        tls: { mode: holdfast.TLSMode.TLSManaged },
        resources: { limits: { memory: "256Mi" } },
    },
});

export const endpoint = tenant.endpoint;

// The arguments are typed, down to the spec of the LeaseService.
new holdfast.LeaseTenant("wrong", {
    tenant: "wrong",
    // @ts-expect-error a number is asked for
    service: { replicas: "three" },
});
new holdfast.LeaseTenant("misspelt", {
    tenant: "misspelt",
    // @ts-expect-error no such field
    service: { replicaz: 3 },
});
// @ts-expect-error the tenant is required
new holdfast.LeaseTenant("incomplete", { namespace: "team-a" });
