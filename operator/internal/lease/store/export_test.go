package store

// Rest has the last batch of a cursor committed so long ago that etcd may have been restored since.
func (c *Cursor) Rest() { c.committed = c.committed.Add(-2 * restoreTakes) }
