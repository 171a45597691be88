package lab

import (
	"fmt"
	"syscall"
)

// RaiseFileLimit lets this process, and those that it starts, open as many files as the tests need, or says why that cannot be. A proxy
// that runs out of files stops to accept for good, and everything that fails then fails for no fault of the service.
func RaiseFileLimit(needed uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= needed {
		return nil
	}
	raised := syscall.Rlimit{Cur: needed, Max: max(limit.Max, needed)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
		return fmt.Errorf("a process may open %d files here and the robustness tests need %d; raise the limit (ulimit -n): %w", limit.Cur, needed, err)
	}
	return nil
}
