package zktypes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// DefaultPort is the client port of a server that names none.
const DefaultPort = "2181"

// ConnectString says where an ensemble is, and below which znode of it everything happens. The zero value is not
// valid; ParseConnectString makes one.
type ConnectString struct {
	// Hosts are the servers as "host:port", an IPv6 address in brackets, lower case, ordered, each once.
	Hosts []string
	// Chroot is the znode that paths are relative to: empty, or "/a/b".
	Chroot string
}

// ParseConnectString reads "host1:2181,host2,[2001:db8::1]:2181/chroot": servers separated by commas, the port 2181
// when none is given, and an optional chroot after the last one.
func ParseConnectString(text string) (ConnectString, error) {
	hosts, chroot, hasChroot := strings.Cut(strings.TrimSpace(text), "/")
	out := ConnectString{}
	if hasChroot && chroot != "" {
		out.Chroot = "/" + strings.TrimSuffix(chroot, "/")
		if err := ValidatePath(out.Chroot); err != nil {
			return ConnectString{}, fmt.Errorf("connect string %q: chroot: %w", text, err)
		}
	}
	for part := range strings.SplitSeq(hosts, ",") {
		host, err := parseHost(strings.TrimSpace(part))
		if err != nil {
			return ConnectString{}, fmt.Errorf("connect string %q: server %q: %w", text, part, err)
		}
		out.Hosts = append(out.Hosts, host)
	}
	slices.Sort(out.Hosts)
	out.Hosts = slices.Compact(out.Hosts)
	return out, nil
}

func parseHost(text string) (string, error) {
	if text == "" {
		return "", errors.New("it is empty: a server is host:port")
	}
	host, port := text, DefaultPort
	// A bare IPv6 address has colons and no port; with a port it must be in brackets.
	bare := net.ParseIP(strings.Trim(text, "[]"))
	if bare == nil && strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", fmt.Errorf("it is not host:port (an IPv6 address with a port needs brackets): %w", err)
		}
	} else if bare != nil {
		host = bare.String()
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n@?#\\") {
		return "", fmt.Errorf("host %q is neither a name nor an address", host)
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

// String writes the connect string in its one normal form.
func (c ConnectString) String() string { return strings.Join(c.Hosts, ",") + c.Chroot }

// Ensemble writes the servers alone. Two connect strings with equal ensembles differ at most in their chroot.
func (c ConnectString) Ensemble() string { return strings.Join(c.Hosts, ",") }

// SharesServer tells whether both name at least one server in common, and are thus the same ensemble. Different
// names of one server are not recognised.
func (c ConnectString) SharesServer(other ConnectString) bool {
	return slices.ContainsFunc(c.Hosts, func(host string) bool { return slices.Contains(other.Hosts, host) })
}

// Full is a path of this connect string as the ensemble sees it.
func (c ConnectString) Full(path string) string {
	if path == "/" && c.Chroot != "" {
		return c.Chroot
	}
	return c.Chroot + path
}
