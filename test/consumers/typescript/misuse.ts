// What the compiler refuses; it is checked and never run. The arguments are typed, down to the spec of the LeaseService.
import * as holdfast from "@holdfast-io/holdfast";

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
