// Package release decides which revision each application of a ReleaseGuard is to have. It is pure: of a spec, of the
// status that an earlier decision left, of what is observed and of the time it makes a new status and the moves that
// follow from it.
//
// The rules:
//
//   - A ring is given the revision when every earlier ring is proved and, at this moment, in effect, and every check of
//     theirs has passed since.
//   - A ring is proved when all its applications were in effect without a break for its soak time. In effect means: Argo CD
//     compared the application with this very target revision after it last synced, found it Synced and Healthy, runs no
//     operation, and its workloads have themselves seen their present generation. A Healthy of an earlier revision is
//     none of that.
//   - A ring fails when an application is not in effect in time, fails too often in a row, or is at another commit than
//     the revision was in an earlier ring, or when a check crosses its bound. Then this ring, and every other one that
//     has the revision and is not proved, returns to what it had before, and no ring is given the revision again.
//   - What a ring proved becomes its last good revision only when the release is over. Until then a failure returns even
//     a proved ring to what it had before the release.
//   - What cannot be asked (a query without an answer) is no failure. It lets no ring go either.
//
// The status is the memory, and is written ahead: a move is only made once a status that asks for it has been written. So
// nothing that was decided is forgotten by a crash: a rollback of which only the first application was moved goes on
// afterwards, and a revision that was moved back is never taken for one that was not tried yet.
//
// Times in the status have whole seconds, which is what the API server keeps; every deadline is counted from them.
package release
