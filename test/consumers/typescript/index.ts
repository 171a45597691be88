// A tenant of Holdfast from TypeScript, on an etcd for development, in a namespace that a platform has prepared.
import * as pulumi from "@pulumi/pulumi";

import * as holdfast from "@holdfast-io/holdfast";

const config = new pulumi.Config();
const namespace = config.require("namespace");

const etcd = new holdfast.DevEtcd("etcd", {
    namespace: "consumer-typescript-etcd",
    image: config.require("etcdImage"),
    clientNamespaces: [namespace],
});

const tenant = new holdfast.LeaseTenant("from-typescript", {
    tenant: "from-typescript",
    namespace,
    service: {
        replicas: 1,
        leaseTTLSeconds: 30,
        // What another resource gives may be given on: the tenant waits for it.
        etcdEndpoints: [etcd.endpoint],
        tls: { mode: holdfast.TLSMode.TLSManaged },
        resources: { requests: { cpu: "20m", memory: "32Mi" }, limits: { memory: "256Mi" } },
    },
});

export const endpoint = tenant.endpoint;
