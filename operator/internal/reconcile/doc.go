// Package reconcile is the generic reconciler that every kind of the operator stands on: fetch, gather, decide,
// apply, report. A kind gathers and decides; this package does the rest, and is the only one that writes to the
// API server.
package reconcile
