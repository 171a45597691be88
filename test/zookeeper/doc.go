// Package zookeeper runs real ZooKeeper servers for tests: Debian's package, each server a Java process on free
// ports of the loopback interface with its files in the test's temporary folder. Nothing of the system's own
// ZooKeeper is touched. tools/debian-packages.sh zookeeper installs what it needs.
//
// A tick is 200 ms instead of 2 s, so that the shortest session is 400 ms, and tests of expiry are quick.
package zookeeper
