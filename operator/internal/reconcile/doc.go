// Package reconcile is the generic reconciler that every kind of the operator stands on: fetch, gather, decide, apply,
// report. A kind gathers and decides (Kind, Plan); this package does the rest, and is the only one that writes to the API
// server.
//
// What it promises, and the test kit (testkit) holds every kind to:
//
//   - An object at rest is not written to, and nothing is asked of the API server: drift is told from the cache
//     (drift.go).
//   - Every write carries what it was decided on, so a cache that lags, a restart and a second operator cause refused
//     requests and never wrong writes (write.go, ledger.go).
//   - An object of somebody else is never touched (claim.go).
//   - What an error means (conditions, requeue, event, log) is decided in one pure function (verdict.go).
//   - The status is computed once and written once a pass, if it differs, and events follow it (report.go).
//
// docs/adr/0003-reconciler.md argues the decisions, docs/contributing-a-kind.md is the recipe for a new kind.
package reconcile
