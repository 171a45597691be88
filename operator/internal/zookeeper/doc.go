// Package zookeeper keeps the operator's connections to ZooKeeper: one session for each ensemble and credential,
// shared by every object that uses it, reconnecting by itself.
//
//   - Pool hands out sessions and closes those that nobody uses. Sessions that differ in nothing but the chroot share one with
//     the server.
//   - Session makes requests with deadlines, and keeps what it was asked to watch current in memory. A watch of
//     ZooKeeper fires once and tells only that something changed, so every event is followed by a read that sets the
//     next one, and after every reconnect all that is watched is compared with the server again before it is relied on.
//   - What many ask for at the same time goes together: first looks by a listing of the parent (looks), creations in one
//     transaction (creations), packets in one write (wire). Whoever is alone waits for nobody.
//   - A circuit breaker for each ensemble refuses requests at once while it is away; a prober, and no object, finds
//     out when it is back.
//
// It stands on github.com/go-zookeeper/zk, and works around what its issues tell of: a request has no deadline
// (#47), an ensemble that lost its state answers a known session with EOF for ever (#36), and a failed
// resubmission of credentials wedges the connection's loop (#163). See session.guard.
package zookeeper
