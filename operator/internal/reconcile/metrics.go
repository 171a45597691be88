package reconcile

// Metrics are the counters that the reconcilers of a binary share.
type Metrics struct{}
