package main

import "syscall"

// attributes also let the command die with us: nobody would watch its lease any more.
func attributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
